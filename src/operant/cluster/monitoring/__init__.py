"""Prometheus and Grafana over runs, searches and Ray: what they are told, and starting and ending them here."""

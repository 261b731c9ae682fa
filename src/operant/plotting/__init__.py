"""Charts as files: what a chart is, where its parts lie, and how these are written as SVG, HTML, PNG and PDF."""

"""`StepTimer` under the name that DI-engine has for it."""

from __future__ import annotations

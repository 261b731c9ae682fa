from __future__ import annotations

import sys
from pathlib import Path

# Workers are new interpreters that import the functions they run: `import mains` must work there too.
sys.path.insert(0, str(Path(__file__).parent))

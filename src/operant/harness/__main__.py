import sys

from operant.harness.command import main

sys.exit(main())

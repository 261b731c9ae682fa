import sys

from operant.auto.command import main

sys.exit(main())

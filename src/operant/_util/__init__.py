"""What every room may use and no user needs: files that appear whole, units, checks of settings, printable text."""

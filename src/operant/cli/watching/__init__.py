"""The live view in a terminal: what is shown, how it is drawn, and which keys do what."""

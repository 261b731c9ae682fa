"""What takes in requests: runs that other machines send, behind one gate. `operant serve` is the whole of it."""

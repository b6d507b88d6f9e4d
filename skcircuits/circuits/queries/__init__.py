"""What can be asked of one circuit."""

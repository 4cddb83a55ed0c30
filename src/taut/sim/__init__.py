"""The same policies under virtual time: what they would do at any scale, and on published loads."""

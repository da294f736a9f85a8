"""Groups: who is a member, who reads what, and how far everybody has come."""

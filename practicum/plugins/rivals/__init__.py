"""Methods of other papers, to be compared with those of the core."""

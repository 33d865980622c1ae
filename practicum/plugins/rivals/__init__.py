"""Methods from other papers, for comparison with the methods of the core."""

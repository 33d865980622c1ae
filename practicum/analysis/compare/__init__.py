"""Comparison of methods: variants, one run per variant and seed, and tests of the differences."""

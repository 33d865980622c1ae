"""Compare methods: variants as data, one ordinary run for each, and what may be claimed about the differences."""

"""Speed, as ratios of two sides alternated in one run: `make benchmark`. Not part of the tests."""

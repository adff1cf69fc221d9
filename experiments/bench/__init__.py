"""Speed, measured: each alternative in one run, interleaved."""

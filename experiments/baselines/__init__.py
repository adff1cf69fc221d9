"""What PATE is compared with: other ways to learn with a differential-privacy guarantee."""

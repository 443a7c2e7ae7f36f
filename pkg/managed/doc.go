package managed

package main

func updateQuotes(dir string, r *results) error { return nil }

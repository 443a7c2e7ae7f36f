package main

func charts(r *results) []chart { return nil }

type chart struct{ file string }

func (c chart) save(dir, ext string) error { return nil }

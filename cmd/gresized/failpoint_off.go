//go:build !failpoint

package main

// failpoint is nothing in a release; tests build with the tag failpoint.
func failpoint() func(string) { return nil }

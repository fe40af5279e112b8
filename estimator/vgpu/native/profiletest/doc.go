// Package profiletest feeds the native reader of device profiles, built with the sanitizers, with whatever a file or a variable may hold.
package profiletest

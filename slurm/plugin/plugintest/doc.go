// Package plugintest tests the C plugin in the folder above: it loads the built
// job_submit_gresize.so into a stand-in for slurmctld and submits jobs to it,
// against healthy and misbehaving daemons. It has no code of its own.
package plugintest

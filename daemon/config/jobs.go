package config

// maxNames bounds one list of names.
const maxNames = 1024

// checkJobs looks at the lists that choose jobs. A word that is in a list and its counterpart is a slip: the job would never be looked at.
func (c *Config) checkJobs(found *faults) {
	for _, l := range []struct {
		field        string
		only, except []string
	}{
		{"partitions", c.Jobs.Partitions, c.Jobs.ExceptPartitions}, {"accounts", c.Jobs.Accounts, c.Jobs.ExceptAccounts},
		{"qos", c.Jobs.QOS, c.Jobs.ExceptQOS}, {"users", c.Jobs.Users, c.Jobs.ExceptUsers},
	} {
		taken := map[string]bool{}
		for _, name := range l.only {
			if !plainWord.MatchString(name) {
				found.add("jobs."+l.field, "letters, digits and _.+-", "%.60q is no plain name", name)
			}
			taken[name] = true
		}
		for _, name := range l.except {
			if !plainWord.MatchString(name) {
				found.add("jobs.except_"+l.field, "letters, digits and _.+-", "%.60q is no plain name", name)
			} else if taken[name] {
				found.add("jobs.except_"+l.field, "take it out of one of the two", "%s is in jobs.%s too", name, l.field)
			}
		}
		if len(l.only) > maxNames || len(l.except) > maxNames {
			found.add("jobs."+l.field, "name partitions or accounts rather than users", "more than %d names", maxNames)
		}
	}
}

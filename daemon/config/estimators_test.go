package config

import (
	"strings"
	"testing"
	"time"
)

func TestEstimators(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		"[[estimator]]\nname = \"mine\"\ncommand = [\"/usr/bin/mine\"]\n":                                                "",
		"[[estimator]]\nname = \"mine\"\n":                                                                               "no estimator \"mine\" is bundled",
		"[[estimator]]\nname = \"mine\"\ncommand = [\"/usr/bin/mine\"]\nsha256 = \"" + strings.Repeat("0f", 32) + "\"\n": "",
		"[[estimator]]\nname = \"mine\"\ncommand = [\"/usr/bin/mine\"]\nsha256 = \"0f\"\n":                               "sha256sum",
		"[[estimator]]\nname = \"mine\"\ncommand = [\"/usr/bin/mine\"]\nreads = [\"/data/models/\"]\n":                   "",
		"[[estimator]]\nname = \"mine\"\ncommand = [\"/usr/bin/mine\"]\nreads = [\"models\"]\n":                          "reads[0]",
		"[[estimator]]\nname = \"mine\"\ncommand = [\"/usr/bin/mine\"]\nreads = [\"/\"]\n":                               "no absolute path",
		"[[estimator]]\nname = \"vgpu\"\nreads = [\"/data\"]\n":                                                          "reads nothing but the bundle",
		"[[estimator]]\nname = \"vgpu\"\nsha256 = \"" + strings.Repeat("0f", 32) + "\"\n":                                "pins no program",
		"[[estimator]]\nname = \"mine\"\ncommand = [\"mine\"]\n":                                                         "no absolute path",
		"[[estimator]]\nname = \"vgpu\"\n[[estimator]]\nname = \"vgpu\"\n":                                               "twice",
		"[[estimator]]\nname = \"vgpu\"\ntimeout = \"2h\"\n":                                                             "not between",
		"[[estimator]]\nname = \"\"\n":                                                                                   "no plain name",
		strings.Repeat("[[estimator]]\nname = \"vgpu\"\n", maxEstimators+1):                                              "at most",
		"[[estimator]]\nname = \"vgpu\"\ncomand = [\"/usr/bin/mine\"]\n":                                                 "did you mean command",
	} {
		c, err := Parse("f", "version = 1\n"+text)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", text, err, want)
		case err == nil && (len(c.Estimators) != 1 || c.Estimators[0].Timeout.Std() != 10*time.Second):
			t.Errorf("%q: %+v", text, c.Estimators)
		}
	}
}

package main

import (
	"context"
	"strings"
)

// tooSmall has a job die on a card that is too small for it, and run there with a plan.
func (t *tour) tooSmall(ctx context.Context) error {
	t.say("Another way, for whoever cannot wait for the large card: what autograd keeps goes to host memory meanwhile. First without it:")
	if err := t.sbatch(ctx, "tight", "tight.sh"); err != nil {
		return err
	}
	if _, err := t.ends(ctx, "tight", "FAILED"); err != nil {
		return err
	}
	out, err := t.site.Output("tight-" + t.ids["tight"] + ".out")
	if err != nil {
		return err
	}
	t.print("tail -n 1 tight-"+t.ids["tight"]+".out", shorten(lastLine(out), 160))
	if err := t.claim(strings.Contains(out, "CUDA out of memory"), "it died of GPU memory: it takes 14 GiB, the card has 12"); err != nil {
		return err
	}
	run := strings.Fields("gresize run --target 11.7GiB --gpu rtx3060 --expandable --")
	if err := t.sbatch(ctx, "tight with a plan", append([]string{"tight.sh"}, run...)...); err != nil {
		return err
	}
	job, err := t.ends(ctx, "tight with a plan", "COMPLETED")
	if err != nil {
		return err
	}
	if out, err = t.site.Output("tight-" + t.ids["tight with a plan"] + ".out"); err != nil {
		return err
	}
	t.print("cat tight-"+t.ids["tight with a plan"]+".out", out)
	return t.claim(job["NodeList"] == "gpu1" && strings.Contains(out, "ran there, on the virtual GPU") && strings.Contains(out, "training on NVIDIA GeForce RTX 3060"),
		"with gresize run before its command it ran to its end on gpu1")
}

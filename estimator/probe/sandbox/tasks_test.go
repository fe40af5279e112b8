package sandbox

import (
	"slices"
	"strings"
	"testing"
)

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		args string
		job  map[string]string
		want layout
	}{
		{"-n4 python", nil, layout{4, 1, 0}},
		{"--ntasks=8 -N 2 --gpus-per-task=a100:1 python", nil, layout{8, 2, 1}},
		{"--nodes=2 --ntasks-per-node=4 python", nil, layout{8, 2, 0}},
		{"python -n 9", map[string]string{"SLURM_NTASKS": "4", "SLURM_NNODES": "2"}, layout{4, 2, 0}},
		{"-N 3 python", nil, layout{3, 3, 0}},
		{"-n 1 -N 4 python", nil, layout{1, 1, 0}},
		{"--ntasks=0 python", nil, layout{1, 1, 0}},
		{"--ntasks=99999999999 -N -3 python", nil, layout{1, 1, 0}},
		{"python", map[string]string{"SLURM_NTASKS": "4(x2)"}, layout{4, 1, 0}},
	} {
		_, given := srunOptions.split(strings.Fields(c.args))
		if got := srunLayout(given, c.job); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.args, got, c.want)
		}
	}
	_, given := mpirunOptions.split(strings.Fields("--mca btl tcp -np 6 ./a.out"))
	if got := mpirunLayout(given, nil); got.tasks != 6 {
		t.Errorf("%+v", got)
	}
}

func TestTasksToRun(t *testing.T) {
	for _, c := range []struct {
		tasks, most int
		want        []int
	}{{1, 4, []int{0}}, {4, 4, []int{0, 1, 2, 3}}, {5, 4, []int{0, 4}}, {64, 2, []int{0, 63}}, {2, 1, []int{0, 1}}} {
		if got := tasksToRun(c.tasks, c.most); !slices.Equal(got, c.want) {
			t.Errorf("%d of at most %d: %v, want %v", c.tasks, c.most, got, c.want)
		}
	}
}

func FuzzLayout(f *testing.F) {
	f.Add("-n 4 -N2 --gpus-per-task=h100:2 python", "2(x3)")
	f.Fuzz(func(t *testing.T, args, tasks string) {
		_, given := srunOptions.split(strings.Fields(args))
		l := srunLayout(given, map[string]string{"SLURM_NTASKS": tasks})
		if l.tasks < 1 || l.tasks > mostTasks || l.nodes < 1 || l.nodes > l.tasks || l.gpusPerTask < 0 {
			t.Errorf("%+v", l)
		}
		for _, task := range tasksToRun(l.tasks, mostTasksRun) {
			if len(srunTask(l, task)) == 0 || task/l.perNode() >= l.nodes {
				t.Errorf("task %d of %+v", task, l)
			}
		}
	})
}

package vgpu

import (
	"net"
	"os"
	"strconv"
	"testing"
)

// launch runs testdata/ranks.py by a launcher on a number of virtual GPUs, where at most that many ranks are all run.
func launch(t *testing.T, release string, gpus, most int, arguments ...string) outcome {
	t.Helper()
	return runPython(t, release, gpus, arguments, "OMP_NUM_THREADS=1", "GRESIZE_VGPU_MOST_RANKS="+strconv.Itoa(most))
}

// freePort is a port of this machine that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

const (
	ranksWidth  = 1024
	ranksLayers = 8
	rankModel   = ranksLayers * ranksWidth * ranksWidth
)

func TestTwoRanks(t *testing.T) {
	for _, release := range []string{"2.6.0", "2.11.0"} {
		for _, c := range []struct {
			name string
			// least is the training state of one rank: parameters, gradients, two moments and the copy that AdamW makes.
			least, slack int64
			// apart is how far equal ranks may be from each other.
			apart int64
		}{
			// DDP holds the gradients a second time, in its buckets, and a third time while it makes new buckets after the first step, for as
			// long as the thread that watches NCCL has not seen the first ones done (a likely cause, not traced).
			{"ddp", 5 * 4 * rankModel, 2*4*rankModel + 2*32*mib + 16*mib, 4*rankModel + mib},
			// A shard of everything, and the whole parameters and gradients of the layer that is at work and the next.
			{"fsdp2", 5 * 4 * rankModel / 2, 12*4*rankModel/ranksLayers + 2*32*mib + 16*mib, mib},
		} {
			t.Run(c.name+"-"+release, func(t *testing.T) {
				o := launch(t, release, 2, 4, append([]string{"-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", freePort(t), "testdata/ranks.py"}, c.name)...)
				if o.failed || len(o.ranks) != 2 || o.reports.Steps < 4 {
					t.Fatalf("%d ranks, %d steps\n%s", len(o.ranks), o.reports.Steps, o.output)
				}
				if len(o.reports.Reasons) != 0 {
					t.Errorf("reasons: %+v", o.reports.Reasons)
				}
				for i, r := range o.ranks {
					if r.Rank != i || r.Device != i || r.WorldSize != 2 || len(r.Communicators) == 0 {
						t.Errorf("rank %d on device %d of %d, %+v", r.Rank, r.Device, r.WorldSize, r.Communicators)
					}
					if uses := r.Coverage.Values.Uses; len(uses) > 0 {
						t.Errorf("rank %d: answered by a policy, though the ranks have told it each other: %v", i, uses)
					}
					if r.Coverage.StepsUneven {
						t.Errorf("rank %d: the steps are told to differ", i)
					}
					if r.PeakAllocatedBytes < c.least || r.PeakAllocatedBytes > c.least+c.slack {
						t.Errorf("rank %d: %d bytes, want %d to %d", i, r.PeakAllocatedBytes, c.least, c.least+c.slack)
					}
				}
				if a, b := o.ranks[0].PeakAllocatedBytes, o.ranks[1].PeakAllocatedBytes; a-b > c.apart || b-a > c.apart {
					t.Errorf("equal ranks differ: %d and %d bytes", a, b)
				}
			})
		}
	}
}

// TestManyRanks runs what takes minutes. Of many ranks the first and the last are run, and show what each rank of the whole job shows.
func TestManyRanks(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly")
	}
	torchrun := func(perNode, nodes int, name string) []string {
		return []string{"-m", "torch.distributed.run", "--nproc-per-node", strconv.Itoa(perNode), "--nnodes", strconv.Itoa(nodes), "--rdzv-backend", "c10d",
			"--rdzv-endpoint", "localhost:0", "--rdzv-id", "test", "testdata/ranks.py", name}
	}
	run := func(t *testing.T, gpus, most int, arguments ...string) []rankReport {
		t.Helper()
		o := launch(t, "2.6.0", gpus, most, arguments...)
		if o.failed || o.reports.Steps < 4 || len(o.reports.Reasons) != 0 {
			t.Fatalf("%d ranks, %d steps, reasons %+v\n%s", len(o.ranks), o.reports.Steps, o.reports.Reasons, o.output)
		}
		return o.ranks
	}
	for _, name := range []string{"fsdp1", "fsdp2", "tensor_parallel", "pipeline"} {
		t.Run(name, func(t *testing.T) {
			all, some := run(t, 4, 4, torchrun(4, 1, name)...), run(t, 4, 2, torchrun(4, 1, name)...)
			if len(all) != 4 || len(some) != 2 || some[0].Rank != 0 || some[1].Rank != 3 {
				t.Fatalf("%d and %d ranks", len(all), len(some))
			}
			for i, r := range []rankReport{all[0], all[3]} {
				if r.PeakAllocatedBytes != some[i].PeakAllocatedBytes || r.PeakReservedBytes != some[i].PeakReservedBytes {
					t.Errorf("rank %d: %d allocated and %d reserved among all, %d and %d without the others", r.Rank,
						r.PeakAllocatedBytes, r.PeakReservedBytes, some[i].PeakAllocatedBytes, some[i].PeakReservedBytes)
				}
			}
		})
	}
	t.Run("64 ranks on 8 nodes", func(t *testing.T) {
		ranks := run(t, 8, 2, torchrun(8, 8, "fsdp2")...)
		if len(ranks) != 2 || ranks[1].Rank != 63 || ranks[1].Node != 7 || ranks[1].Device != 7 || ranks[1].WorldSize != 64 {
			t.Errorf("%+v", ranks)
		}
	})
	t.Run("mp.spawn", func(t *testing.T) {
		if ranks := run(t, 2, 2, "testdata/ranks.py", "spawn", "ddp"); len(ranks) != 2 {
			t.Errorf("%+v", ranks)
		}
		if ranks := run(t, 6, 2, "testdata/ranks.py", "spawn", "fsdp2"); len(ranks) != 2 || ranks[1].Rank != 5 {
			t.Errorf("%+v", ranks)
		}
	})
}

package site

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gresize/gresize/slurm/minicluster"
)

// withAccounting gives every job on a GPU node a folder in which its processes leave what they took on the virtual GPU: the accounting that NVML keeps of a
// real one, which nvidia-smi reads there.
func (s *Site) withAccounting(nodes []minicluster.Node) ([]minicluster.Node, error) {
	nodes = append([]minicluster.Node(nil), nodes...)
	for i := range nodes {
		if nodes[i].GPUs == 0 {
			continue
		}
		folder := s.accounting(nodes[i].Name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		if err := os.Chmod(folder, 0o777|os.ModeSticky); err != nil {
			return nil, err
		}
		nodes[i].GPUEnv = append(append([]string(nil), nodes[i].GPUEnv...), "GRESIZE_VGPU_REPORT_DIR="+folder)
	}
	return nodes, nil
}

func (s *Site) accounting(node string) string { return s.path(filepath.Join("accounting", node)) }

// epilog is what a site would write: it never fails, and says where gresized is. The variables are those of the node's virtual GPU.
func (s *Site) epilog() string {
	return fmt.Sprintf(`#!/bin/sh
export PATH=%[1]s:/usr/bin:/bin GRESIZE_VGPU_REPORT_DIR=%[2]s/"$SLURMD_NODENAME" GRESIZE_VGPU_PROFILE=%[3]s/"$SLURMD_NODENAME".profile
%[4]s -url http://%[5]s %[6]s -folder %[7]s/"$SLURMD_NODENAME" 2>>%[8]s
exit 0
`, filepath.Join(s.Cluster.Dir(), "share", "vgpu-bin"), s.path("accounting"), filepath.Join(s.Cluster.Dir(), "gpu"), filepath.Join(s.libexec, "gresize-epilog"), s.probes,
		s.Proof(), s.path("run-root/epilog"), s.path("log/epilog.log"))
}

// Proof are the options with which gresize-epilog proves who it is.
func (s *Site) Proof() string {
	if key := s.Cluster.SlurmKey(); key != "" {
		return "-key " + key
	}
	return "-munge-socket " + s.Cluster.MungeSocket()
}

// EpilogLog is what gresize-epilog has said so far.
func (s *Site) EpilogLog() (string, error) {
	text, err := os.ReadFile(s.path("log/epilog.log"))
	return string(text), err
}

// Epilog is gresize-epilog, and the address to which it reports.
func (s *Site) Epilog() (program, url string) {
	return filepath.Join(s.libexec, "gresize-epilog"), "http://" + s.probes
}

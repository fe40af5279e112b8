package server

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// TestAcceptOutlivesTheWantOfDescriptors lets accept fail with EMFILE for a while: the server says nothing is wrong with it, and answers again.
func TestAcceptOutlivesTheWantOfDescriptors(t *testing.T) {
	_, path := start(t, 4, slow{})
	if _, err := ask(path); err != nil {
		t.Fatal(err)
	}
	waiting, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(waiting)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	// Descriptors are given out from the lowest free number on: with the limit below what is open, there is none.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	_, refused := net.Dial("unix", path)
	connected := syscall.Connect(waiting, &syscall.SockaddrUnix{Name: path})
	time.Sleep(200 * time.Millisecond)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if connected != nil || refused == nil {
		t.Fatalf("there was no want of descriptors: %v, %v", connected, refused)
	}
	if reply, err := ask(path); err != nil || reply == nil {
		t.Errorf("afterwards: %v", err)
	}
}

package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The network inside ends at this machine. Programs find each other there as they would outside, though: they ask for the name of the host, or for an address of a
// named interface, and connect. So the network has the machine's interfaces by name and their addresses, each alone and without a way to a neighbour, and every name of
// the host and of the job's nodes leads to an address that is here. Whoever connects to one reaches a program of the sandbox or nobody.

// Limits on what is taken over.
const (
	maxInterfaces = 32
	maxAddresses  = 128
	maxNames      = 16
	maxHostsBytes = 1 << 20
	lookupTime    = 2 * time.Second
)

// network is what the starting process saw of the machine's.
type network struct {
	Interfaces []netInterface
	Names      []hostName
}

// netInterface is an interface with addresses.
type netInterface struct {
	Name      string
	Addresses []netip.Addr
}

// hostName is a name of this host or of one of the job's nodes, and what the machine's own look-up said of it; that may be nothing.
type hostName struct {
	Name, Canonical string
	Addresses       []netip.Addr
}

// lookAtNetwork is to be called outside. It asks name services as any program does, and waits for no answer that is late.
func lookAtNetwork(ctx context.Context, env []string) network {
	var n network
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil || i.Flags&net.FlagUp == 0 || len(n.Interfaces) >= maxInterfaces {
			continue
		}
		own := netInterface{Name: i.Name}
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				own.Addresses = append(own.Addresses, prefix.Addr())
			}
		}
		n.Interfaces = append(n.Interfaces, own)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	names := hostNames(env)
	n.Names = make([]hostName, len(names))
	var asked sync.WaitGroup
	for i, name := range names {
		asked.Go(func() { n.Names[i] = lookUp(ctx, name) })
	}
	asked.Wait()
	return n
}

// hostNames are the names by which programs of the job call this host and its other nodes.
func hostNames(env []string) []string {
	var names []string
	if name, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(name, ".")
		names = append(names, name, short)
	}
	for _, kv := range env {
		switch key, value, _ := strings.Cut(kv, "="); {
		case key == "HOSTNAME", key == "MASTER_ADDR", key == "SLURMD_NODENAME", key == "SLURM_LAUNCH_NODE_IPADDR", strings.HasPrefix(key, "SLURM_") && strings.HasSuffix(key, "NODELIST"):
			names = append(names, expandNodes(value)...)
		}
	}
	var found []string
	for _, name := range names {
		if name != "" && name != "localhost" && len(name) < 254 && !strings.ContainsFunc(name, notInNames) && !slices.Contains(found, name) && len(found) < maxNames {
			found = append(found, name)
		}
	}
	return found
}

func notInNames(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.:", r)
}

// expandNodes reads a list as Slurm writes it: gpu1,node[01-03,7].
func expandNodes(list string) []string {
	var names []string
	for list != "" && len(names) < maxNames {
		end := strings.IndexByte(list, ',')
		if open := strings.IndexByte(list, '['); open >= 0 && (end < 0 || open < end) {
			shut := strings.IndexByte(list, ']')
			if shut < open {
				return names
			}
			prefix, ranges := list[:open], list[open+1:shut]
			suffix, rest, _ := strings.Cut(list[shut+1:], ",")
			for part := range strings.SplitSeq(ranges, ",") {
				from, to, ranged := strings.Cut(part, "-")
				first, err := strconv.Atoi(from)
				last := first
				if ranged && err == nil {
					last, err = strconv.Atoi(to)
				}
				for number := first; err == nil && number <= last && len(names) < maxNames; number++ {
					names = append(names, fmt.Sprintf("%s%0*d%s", prefix, len(from), number, suffix))
				}
			}
			list = rest
			continue
		}
		name, rest, _ := strings.Cut(list, ",")
		names, list = append(names, name), rest
	}
	return names
}

// lookUp asks by getent, which asks whatever this machine is set up to ask.
func lookUp(ctx context.Context, name string) hostName {
	h := hostName{Name: name}
	if address, err := netip.ParseAddr(name); err == nil {
		h.Addresses = []netip.Addr{address}
		return h
	}
	cmd := exec.CommandContext(ctx, "getent", "ahosts", name)
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin"}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return h
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if address, err := netip.ParseAddr(fields[0]); err == nil && address.Zone() == "" && !slices.Contains(h.Addresses, address) {
			h.Addresses = append(h.Addresses, address)
		}
		if len(fields) > 2 && h.Canonical == "" && !strings.ContainsFunc(fields[2], notInNames) {
			h.Canonical = fields[2]
		}
	}
	return h
}

// hostsFile is text, /etc/hosts as it is outside, with a line for each name that has none in it.
func (n *network) hostsFile(text []byte) []byte {
	known := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(line); len(fields) > 1 {
			for _, name := range fields[1:] {
				known[name] = true
			}
		}
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	for _, h := range n.Names {
		if _, err := netip.ParseAddr(h.Name); err == nil || known[h.Name] {
			continue
		}
		known[h.Name] = true
		address := "127.0.0.1"
		if i := slices.IndexFunc(h.Addresses, netip.Addr.Is4); i >= 0 {
			address = h.Addresses[i].String()
		} else if len(h.Addresses) > 0 {
			address = h.Addresses[0].String()
		}
		text = append(text, address...)
		if h.Canonical != "" && h.Canonical != h.Name {
			text = append(text, " "+h.Canonical...)
		}
		text = append(text, " "+h.Name+"\n"...)
	}
	return text
}

// raise brings the network of this namespace up. Only the loopback interface is certain to be had.
func (n *network) raise() error {
	link, err := openLink()
	if err != nil {
		return err
	}
	defer unix.Close(link.fd)
	const loopback = 1
	if err := link.up(loopback); err != nil {
		return err
	}
	given := map[netip.Addr]bool{}
	give := func(index int, addresses []netip.Addr) {
		for _, a := range addresses {
			if a = a.Unmap(); a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() && a.Is6() || given[a] || len(given) >= maxAddresses {
				continue
			}
			given[a] = true
			_ = link.address(index, a) // where a kernel has no IPv6, its names have other addresses
		}
	}
	for _, i := range n.Interfaces {
		index := loopback
		if i.Name != "lo" && len(i.Addresses) > 0 && link.add(i.Name) == nil {
			if made, err := net.InterfaceByName(i.Name); err == nil && link.up(made.Index) == nil {
				index = made.Index
			}
		}
		give(index, i.Addresses)
	}
	for _, h := range n.Names {
		give(loopback, h.Addresses)
	}
	return nil
}

// link speaks to the kernel about interfaces.
type link struct{ fd int }

func openLink() (*link, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &link{fd}, nil
}

// add makes an interface that leads nowhere, of the first kind that this kernel has.
func (l *link) add(name string) error {
	var err error
	for _, kind := range []string{"dummy", "bridge"} {
		info := attribute(unix.IFLA_LINKINFO, attribute(unix.IFLA_INFO_KIND, []byte(kind)))
		if err = l.ask(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, make([]byte, unix.SizeofIfInfomsg), attribute(unix.IFLA_IFNAME, []byte(name+"\x00")), info); err == nil {
			return nil
		}
	}
	return err
}

func (l *link) up(index int) error {
	message := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(message[4:], uint32(index))
	binary.NativeEndian.PutUint32(message[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(message[12:], unix.IFF_UP)
	return l.ask(unix.RTM_NEWLINK, 0, message)
}

// address gives an interface an address, alone in its network: neighbours stay unreachable at once, and nobody waits for them.
func (l *link) address(index int, a netip.Addr) error {
	const withoutDuplicateCheck = unix.IFA_F_NODAD
	family := byte(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	message := []byte{family, byte(a.BitLen()), withoutDuplicateCheck, unix.RT_SCOPE_UNIVERSE, 0, 0, 0, 0}
	binary.NativeEndian.PutUint32(message[4:], uint32(index))
	return l.ask(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, message, attribute(unix.IFA_LOCAL, a.AsSlice()), attribute(unix.IFA_ADDRESS, a.AsSlice()))
}

// attribute is one attribute of a message, padded to whole words.
func attribute(kind uint16, value []byte) []byte {
	const head, word = 4, 4
	a := binary.NativeEndian.AppendUint16(nil, uint16(head+len(value)))
	a = append(binary.NativeEndian.AppendUint16(a, kind), value...)
	return append(a, make([]byte, (word-len(a)%word)%word)...)
}

// ask sends one request and waits for the kernel's answer to it.
func (l *link) ask(kind, flags uint16, parts ...[]byte) error {
	body := slices.Concat(parts...)
	request := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	request = binary.NativeEndian.AppendUint16(request, kind)
	request = binary.NativeEndian.AppendUint16(request, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	request = append(request, make([]byte, 8)...) // sequence and port
	if err := unix.Sendto(l.fd, append(request, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(l.fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel answered with something else")
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

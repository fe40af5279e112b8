package gpu

// What NCCL keeps on a card, from published observations; none of it was measured by ourselves yet. A connection between two GPUs
// has three buffers (0.5, 4.7 and 4 MiB by default: NCCL_BUFFSIZE and the two of its low-latency protocols), which its allocator rounds
// to 10 MiB, and there are as many as channels: 24 on an A100 with NVLink, up to 32 for each pair of H100s.
const (
	ncclSource = "published: github.com/NVIDIA/nccl issues 964 (A100: 544 MiB for a group of two, 688 MiB for a larger one), 864 (1.6 GB) and 1685 (H100: 3.28 GB more for sends to 7 peers)"

	ncclPairBytes  = 544 * mib
	ncclGroupBytes = 688 * mib
	// ncclGroupHighBytes is what one group was seen to take where more algorithms are in use.
	ncclGroupHighBytes = 1536 * mib
	// ncclPeerBytes is what the first send or receive between two GPUs of a node adds.
	ncclPeerBytes = 447 * mib
	// ncclSlowGroupBytes is for cards without NVLink: NCCL opens few channels there, and the buffers are partly the host's.
	ncclSlowGroupBytes = 144 * mib
	ncclSlowPeerBytes  = 40 * mib
	// ncclNearPeers: beyond the GPUs of one node buffers are those of the network, shared by all peers.
	ncclNearPeers = 7
	// hbmBusBits is the width of one stack of HBM (JEDEC JESD235); GDDR buses have at most 512 bits in all.
	hbmBusBits = 1024
)

// NCCLUse is what one process did with NCCL.
type NCCLUse struct {
	// Pairs are groups of two ranks, Groups larger ones; Peers are the other ranks that it sent to or received from, in all groups together.
	Pairs, Groups, Peers int64
}

// NCCLBytes is the device memory of NCCL in one process, as a point and the upper end of its interval.
func (p *Profile) NCCLBytes(use NCCLUse) Figure {
	if use == (NCCLUse{}) {
		return Figure{Source: ncclSource}
	}
	pair, group, peer := ncclPairBytes, ncclGroupBytes, ncclPeerBytes
	if !p.hasNVLink() {
		pair, group, peer = ncclSlowGroupBytes, ncclSlowGroupBytes, ncclSlowPeerBytes
	}
	peers := min(use.Peers, ncclNearPeers)
	low := use.Pairs*pair + use.Groups*group + peers*peer
	// Groups that are made and little used take less, those that use every algorithm more.
	high := use.Pairs*group + use.Groups*max(ncclGroupHighBytes*group/ncclGroupBytes, group) + peers*peer
	return Figure{Bytes: min(low, p.Total.Bytes), HighBytes: min(high, p.Total.Bytes), Source: ncclSource}
}

// hasNVLink says that cards of this model are usually joined by NVLink: those with HBM, whose bus is wide. Of a slice no process reaches another's.
func (p *Profile) hasNVLink() bool {
	return p.MIG == nil && p.Attributes[attributeMemoryBusBits] >= hbmBusBits
}

"""Ranks of one job, started by a launcher: what they tell each other must be true, and their steps are seen."""
import os
import socket
import sys

import torch
import torch.distributed as dist
from torch import nn

WIDTH, LAYERS, BATCH = 1024, 8, 64


def model():
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])


def told(device):
    """Values that ranks exchange and read on the host."""
    rank, world = dist.get_rank(), dist.get_world_size()
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (1000 * rank)})
    assert [o["rank"] for o in objects] == list(range(world)), objects
    one = ["settings", rank] if rank == 0 else [None, None]
    dist.broadcast_object_list(one, src=0)
    assert one == ["settings", 0], one
    got = [None] * world if rank == 0 else None
    dist.gather_object(rank * rank, got, dst=0)
    assert rank or got == [r * r for r in range(world)], got
    count = torch.tensor([rank + 1, 10], device=device)
    dist.all_reduce(count)
    assert count.tolist() == [world * (world + 1) // 2, 10 * world], count
    assert (2 * count)[1] == 20 * world and count.max().item() == max(10 * world, world * (world + 1) // 2), count
    # As PyTorch does it for the random numbers of sharded tensors.
    torch.manual_seed(7)
    state = torch.cuda.get_rng_state().to(device)
    dist.broadcast(state, 0)
    assert all(torch.cuda.get_rng_state().to(device) == state)
    torch.cuda.set_rng_state(state.to("cpu"))
    share = torch.tensor([2.0 * rank], device=device)
    dist.all_reduce(share, op=dist.ReduceOp.AVG)
    assert share.item() == world - 1, share
    sizes = torch.tensor([100 * rank + r for r in range(world)], device=device)
    coming = torch.empty_like(sizes)
    dist.all_to_all_single(coming, sizes)
    assert coming.tolist() == [100 * r + rank for r in range(world)], coming
    parts = [torch.empty(1, dtype=torch.int64, device=device) for _ in range(world)]
    dist.all_gather(parts, torch.tensor([7 + rank], device=device))
    assert [p.item() for p in parts] == [7 + r for r in range(world)], parts
    if world > 1:
        after, before = (rank + 1) % world, (rank - 1) % world
        box = torch.empty(1, dtype=torch.int64, device=device)
        ops = [dist.P2POp(dist.isend, torch.tensor([rank], device=device), after), dist.P2POp(dist.irecv, box, before)]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
        assert box.item() == before, box
    half = dist.new_group(list(range(0, world, 2)))
    if rank % 2 == 0:
        members = [None] * dist.get_world_size(half)
        dist.all_gather_object(members, rank, group=half)
        assert members == list(range(0, world, 2)), members
    dist.barrier()


def train(net, device):
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(20):
        net(torch.randn(BATCH, WIDTH, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def ddp(device):
    told(device)
    train(nn.parallel.DistributedDataParallel(model().to(device), device_ids=[device.index]), device)


def fsdp2(device):
    from torch.distributed.fsdp import fully_shard

    net = model().to(device)
    for layer in net:
        fully_shard(layer)
    fully_shard(net)
    train(net, device)


def fsdp1(device):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    train(FullyShardedDataParallel(model(), auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=device.index), device)


def tensor_parallel(device):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    plan = {str(i): ColwiseParallel() if i % 2 == 0 else RowwiseParallel() for i in range(LAYERS)}
    train(parallelize_module(model().to(device), mesh, plan), device)


def pipeline(device):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, world = dist.get_rank(), dist.get_world_size()
    each = LAYERS // world
    net = model()[rank * each : (rank + 1) * each].to(device)
    schedule = ScheduleGPipe(PipelineStage(net, rank, world, device), n_microbatches=4, loss_fn=lambda y, t: ((y - t) ** 2).mean())
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(20):
        x = torch.randn(BATCH, WIDTH, device=device)
        if rank == 0:
            schedule.step(x)
        elif rank == world - 1:
            schedule.step(target=x)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()


def spawned(local, case, world):
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", rank=local, world_size=world)
    globals()[case](torch.device("cuda", local))


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        with socket.create_server(("127.0.0.1", 0)) as free:
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
        torch.multiprocessing.spawn(spawned, args=(sys.argv[2], torch.cuda.device_count()), nprocs=torch.cuda.device_count())
    else:
        local = int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0)
        torch.cuda.set_device(local)
        dist.init_process_group("nccl")
        globals()[sys.argv[1]](torch.device("cuda", local))

"""Reinforcement learning of other libraries: offline_rl.py cql|tianshou."""
import sys

import gymnasium
import numpy as np

if sys.argv[1] == "cql":
    import d3rlpy

    rng = np.random.default_rng(0)
    data = d3rlpy.dataset.MDPDataset(rng.standard_normal((2000, 8)).astype("float32"), rng.standard_normal((2000, 2)).astype("float32"), rng.standard_normal(2000), (np.arange(2000) % 50 == 49).astype("float32"))
    d3rlpy.algos.CQLConfig(batch_size=128).create(device="cuda:0").fit(data, n_steps=40, n_steps_per_epoch=20, show_progress=False, save_interval=100)
else:
    import torch
    from tianshou.algorithm import DQN
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OffPolicyTrainerParams
    from tianshou.utils.net.common import Net

    make = lambda n: DummyVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(n)])
    env = gymnasium.make("CartPole-v1")
    net = Net(state_shape=env.observation_space.shape, action_shape=env.action_space.n, hidden_sizes=[128, 128]).to("cuda")
    algorithm = DQN(policy=DiscreteQLearningPolicy(model=net, action_space=env.action_space, eps_training=0.1), optim=AdamOptimizerFactory(lr=1e-3), gamma=0.9, n_step_return_horizon=3, target_update_freq=320)
    train, test = Collector(algorithm, make(4), VectorReplayBuffer(2000, 4), exploration_noise=True), Collector(algorithm, make(4), exploration_noise=True)
    train.reset(), train.collect(n_step=200, random=True)
    algorithm.run_training(OffPolicyTrainerParams(training_collector=train, test_collector=test, max_epochs=2, epoch_num_steps=100, collection_step_num_env_steps=10, test_step_num_episodes=4, batch_size=64, update_step_num_gradient_steps_per_sample=0.1))

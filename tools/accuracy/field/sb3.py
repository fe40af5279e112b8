"""Stable-Baselines3 and its contributions on gymnasium's environments: sb3.py ALGORITHM."""
import sys

from sb3_contrib import QRDQN, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC

name = sys.argv[1]
make = {
    "ppo": lambda: PPO("MlpPolicy", "CartPole-v1", device="cuda", verbose=1),
    "a2c": lambda: A2C("MlpPolicy", "CartPole-v1", device="cuda", verbose=1),
    "dqn": lambda: DQN("MlpPolicy", "CartPole-v1", device="cuda", learning_starts=200, verbose=1),
    "sac": lambda: SAC("MlpPolicy", "Pendulum-v1", device="cuda", learning_starts=200, verbose=1),
    "qrdqn": lambda: QRDQN("MlpPolicy", "CartPole-v1", device="cuda", learning_starts=200, verbose=1),
    "recurrent": lambda: RecurrentPPO("MlpLstmPolicy", "CartPole-v1", device="cuda", verbose=1),
}
model = make[name]()
model.learn({"ppo": 6144, "recurrent": 512, "a2c": 500}.get(name, 400))

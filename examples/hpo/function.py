"""A search from Python in one sentence: a function, what may vary, and what is wanted of it."""

from operant.hpo import C, R, choice, hpo, quniform, randint, report, uniform


@hpo
def train(config: dict) -> dict:
    """Stands for a training: settings in, scores out; the better the nearer to some point."""
    accuracy = 0.0
    for epoch in range(config["epochs"]):
        rate = config["optimizer"]["lr"]
        accuracy += (1 - accuracy) * min(rate, 0.02 / rate if config["optimizer"]["type"] == "sgd" else rate)
        report(epoch, accuracy)  # so that an assessor could end it early
    return {"accuracy": accuracy - config["dropout"] ** 2, "cost": config["epochs"] * sum(config["layers"])}


def main() -> None:
    search = (
        train.tpe(silent=True)
        .spaces(
            {
                "epochs": 8,
                "dropout": quniform(0, 0.3, 0.1),
                "layers": [randint(16, 64), 2 ** randint(4, 6)],
                "optimizer": {"type": choice(["adam", "sgd"]), "lr": 10 ** uniform(-3, -0.5)},
            }
        )
        .maximize(R["accuracy"] - 1e-5 * R["cost"], name="score")
        .concern(R["cost"], "cost")
        .concern(C["optimizer"]["type"], "kind")
        .stop_when(R["accuracy"] > 0.99)
        .max_steps(40)
        .max_workers(2)
        .seed(0)
        .early_stop("MedianStopAssessor")
    )
    config, result, _ = search.run()
    print(search.history.table(5))
    print(config)
    print(result)
    print(f"search-ctl show --task {search.search_name}")


if __name__ == "__main__":
    main()

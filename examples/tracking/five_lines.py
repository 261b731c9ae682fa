from operant import Run, SummaryWriter

with SummaryWriter("first", config={"lr": 3e-4}) as writer:
    for step in range(1000):
        writer.add_scalar("return", step**0.5, step)

print(Run.open("last").scalars("return")["value"].max())

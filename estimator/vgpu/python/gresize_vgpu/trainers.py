"""What the trainer of a library is set to do every so many steps: an evaluation that is called from no source of the program's.

Asked of its settings, which are plain values; one that comes after each epoch is seen, since epochs are cut short.
"""
from . import sources

MOST_FRAMES = 200
# Networks that say a few numbers of each sample; what others say of all samples may be kept on the card until an evaluation ends.
FEW_OUTPUTS = ("Classification", "MultipleChoice", "Regression")


def ahead(frame):
    """("changes", "evaluates" or "keeps", in words) of an evaluation that a trainer comes to later; None where there is none."""
    for _ in range(MOST_FRAMES):
        if frame is None:
            return None
        if frame.f_code.co_name in ("_inner_training_loop", "train") and not sources.is_users(frame.f_code.co_filename):
            trainer = sources.Moment(frame).find("self")
            if any(c.__name__ == "Trainer" and c.__module__.startswith("transformers") for c in type(trainer).__mro__):
                return _of_transformers(trainer)
        frame = frame.f_back
    return None


def _of_transformers(trainer):
    asked = vars(trainer)
    args = vars(asked["args"])
    strategy = args.get("eval_strategy", args.get("evaluation_strategy"))
    every, now = args.get("eval_steps"), getattr(asked.get("state"), "global_step", 0)
    if getattr(strategy, "value", strategy) != "steps" or asked.get("eval_dataset") is None or isinstance(every, (int, float)) and 1 <= every <= now:
        return None
    what = "an evaluation by %s every %s steps" % (type(trainer).__name__, every)
    rows, usual = args.get("per_device_eval_batch_size"), args.get("per_device_train_batch_size")
    if isinstance(rows, int) and isinstance(usual, int) and rows > usual:
        return "changes", "%s with batches of %d, not %d" % (what, rows, usual)
    if args.get("predict_with_generate") and (args.get("generation_num_beams") or 1) > 1:
        return "changes", "%s that generates with %d beams" % (what, args["generation_num_beams"])
    metrics = asked.get("compute_metrics") is not None and not args.get("prediction_loss_only") and asked.get("preprocess_logits_for_metrics") is None
    if metrics and not args.get("eval_accumulation_steps") and not any(word in type(asked.get("model")).__name__ for word in FEW_OUTPUTS):
        return "keeps", "%s that keeps what the network says of all samples (eval_accumulation_steps is not set)" % what
    return "evaluates", what

"""Writes internal/files/heads/testdata/wild/families.json: the default scales and caps of transformers.

    venv/bin/pip install transformers && venv/bin/python internal/files/heads/testdata/wild/make_families.py internal/files/heads/testdata/wild/families.json

For each model type whose configuration has one of these fields, by default: model_type of the whole and
of its text model, and the fields with their values. transformers needs no torch for this.
"""

import json
import sys

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES, CONFIG_MAPPING

fields = ["logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier", "final_logit_softcapping",
          "logits_soft_cap", "logits_mup_width_multiplier", "scale_decoder_outputs"]
found = {"transformers": transformers.__version__, "types": {}}
for name in sorted(CONFIG_MAPPING_NAMES):
    try:
        config = CONFIG_MAPPING[name]()
        text = config.get_text_config(decoder=True)
    except Exception as e:  # a few need arguments
        print("left out:", name, str(e)[:80], file=sys.stderr)
        continue
    values = {f: getattr(text, f) for f in fields if getattr(text, f, None) is not None}
    if values:
        found["types"][name] = {"text": text.model_type, "width": getattr(text, "hidden_size", None), "values": values}
json.dump(found, open(sys.argv[1], "w"), indent=1, sort_keys=True)
print(file=open(sys.argv[1], "a"))

"""Every slip that a configuration can hold, and the whole sentence that it is told by."""

import re
import tokenize

import gin
import pytest
import tensorflow as tf

from framework import RunConfig, config, errors, testing
from framework.spec import ModeKeys


@gin.configurable(module='slips')
def model_fn(features, labels, mode, rate=0.1):
    return testing.linear_model_fn(features, labels, mode, rate)


@gin.configurable(module='slips')
def input_fn(mode):
    del mode
    return tf.data.Dataset.from_tensor_slices(testing.blobs(8)).batch(4)


@gin.configurable(module='slips')
def needs(value=gin.REQUIRED, other=1):
    return value, other


@gin.configurable(module='slips')
def late():
    gin.bind_parameter('slips.needs.other', 2)


RUN = 'In run.gin, line 2, `{}`: '
LITERAL = (
    "A value is a Python literal (`1e-3`, `'text'`, `[1, 2]`, `{'a': 1}`, `True`, `None`), a reference (`@name`, "
    '`@name()`) or a macro (`%NAME`); there is no arithmetic.'
)

LOADING = {
    'missing file': ("include 'bsae.gin'", '`bsae.gin` is no gin file in `{cwd}`. Did you mean `base.gin`?'),
    'circular include': (
        "include 'circle.gin'",
        "In circle.gin, line 1, `include 'run.gin'`: the includes go in a circle: `run.gin` -> `circle.gin` -> "
        '`run.gin`. Remove one of them.',
    ),
    'unknown module': (
        'import framework.confg',
        'there is no module `framework.confg`. Did you mean `framework.config`?',
    ),
    'unknown configurable': (
        'slips.modle_fn.rate = 1.0',
        '`slips.modle_fn` is not a configurable. Did you mean `slips.model_fn`? Or is the `import` of its module '
        'missing?',
    ),
    'unknown reference': (
        'slips.needs.value = @slips.modle_fn',
        '`@slips.modle_fn` is not a configurable. Did you mean `@slips.model_fn`? Or is the `import` of its module '
        'missing?',
    ),
    'unknown symbol of TensorFlow': (
        'slips.needs.value = @tf.nn.rellu',
        'TensorFlow has no `@tf.nn.rellu`. Did you mean `@tf.nn.relu`?',
    ),
    'unknown parameter': (
        'slips.model_fn.rte = 1.0',
        '`slips.model_fn` has no parameter `rte`. Did you mean `rate`?',
    ),
    'unknown macro': (
        'slips.model_fn.rate = %RTAE',
        '`%RTAE` is a macro that nothing defines. Did you mean `%RATE`?',
    ),
    'unknown constant': (
        'slips.model_fn.rate = %tf.float23',
        'TensorFlow has no `%tf.float23`. Did you mean `%tf.float32`?',
    ),
    'required and never given': (
        'slips.model_fn.rate = %gin.REQUIRED',
        '`slips.model_fn.rate` is required, and nothing gives it a value. Bind it in a later file or on the command '
        'line.',
    ),
    'bad literal': ('slips.model_fn.rate = 2 * 3', "gin can't read it (Expected newline). " + LITERAL),
    'literal of another language': (
        'slips.model_fn.rate = true',
        '`true` is not a Python literal. Did you mean `True`?',
    ),
    'open bracket': ('slips.model_fn.rate = [1,', 'a bracket or a quote is not closed (EOF in multi-line statement).'),
    'unquoted string': (
        'slips.model_fn.rate = fast',
        "`fast` is not a Python literal. Write a text in quotes (`'fast'`), a configurable as `@fast`, a macro as "
        '`%fast`.',
    ),
    'no equals sign': (
        'slips.model_fn.rate 3',
        'there is no `=` where gin expects one. A binding reads `configurable.parameter = value`.',
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'base.gin').write_text('RATE = 0.1\n')
    (tmp_path / 'circle.gin').write_text("include 'run.gin'\n")
    return tmp_path


def failure(function, *arguments):
    with pytest.raises(errors.ConfigurationError) as caught:
        function(*arguments)
    return str(caught.value)


@pytest.mark.parametrize(('text', 'sentence'), LOADING.values(), ids=LOADING.keys())
def test_a_slip_in_a_file_is_told_by_a_sentence(folder, text, sentence):
    before = '# Alone.' if text.startswith('include') else "include 'base.gin'"
    (folder / 'run.gin').write_text(f'{before}\n{text}\n')
    where = '' if sentence.startswith('In ') else RUN.format(text)
    assert failure(config.load, ['run.gin']) == where + sentence.replace('{cwd}', str(folder))


def test_what_newer_pythons_say_of_an_open_bracket_is_the_same_slip(monkeypatch):
    def fail(*_):
        raise tokenize.TokenError('unexpected EOF in multi-line statement', (1, 0))

    monkeypatch.setattr('gin.config_parser.ConfigParser', fail)
    assert failure(config.load, [], ['slips.needs.other = [1,']) == (
        'In the binding `slips.needs.other = [1,`: a bracket or a quote is not closed (unexpected EOF in multi-line '
        'statement).'
    )


# What is found when the configured things are called: each with the binding that it comes from.

BASE = """
Experiment.model_fn = @slips.model_fn
Experiment.train_input_fn = @train/slips.input_fn
Experiment.train_steps = 2
"""
CALLING = {
    'call in place of the function': (
        'Experiment.model_fn = @slips.model_fn()',
        '`@slips.model_fn()` is a call, and nothing gives it `features`, `labels`, `mode`. Write `@slips.model_fn`, '
        'without the parentheses, for the function itself, or bind `slips.model_fn.features = ...`, '
        '`slips.model_fn.labels = ...`, `slips.model_fn.mode = ...`.',
    ),
    'call of a scoped function': (
        'Experiment.train_input_fn = @train/slips.input_fn()',
        '`@train/slips.input_fn()` is a call, and nothing gives it `mode`. Write `@train/slips.input_fn`, without the '
        'parentheses, for the function itself, or bind `train/slips.input_fn.mode = ...`.',
    ),
    'class in place of the object': (
        'Experiment.run_config = @RunConfig',
        "`Experiment.run_config` [<class 'framework.run_config.RunConfig'>] must be a RunConfig. In gin: "
        '`Experiment.run_config = @RunConfig()`, with the parentheses.',
    ),
    'class of a policy in place of the object': (
        'Experiment.early_stopping = @EarlyStopping',
        "`Experiment.early_stopping` [<class 'framework.policies.EarlyStopping'>] must be an EarlyStopping, or None. "
        'In gin: `Experiment.early_stopping = @EarlyStopping()`, with the parentheses.',
    ),
    'class of a set in place of the set': (
        'Experiment.eval_sets = [@valid/EvalSet]',
        "`Experiment.eval_sets` [<class 'framework.run_config.EvalSet'>] must be a list of EvalSet, a dict of input "
        'functions by name, or one input function. In gin: `Experiment.eval_sets = [@valid/EvalSet(), '
        '@test/EvalSet()]`, with the parentheses.',
    ),
    'required by the function': (
        'Experiment.params = @slips.needs()',
        '`@slips.needs()` is a call, and nothing gives it `value`. Write `@slips.needs`, without the parentheses, for '
        'the function itself, or bind `slips.needs.value = ...`.',
    ),
    'value that breaks a rule': (
        "Experiment.train_steps = 'x'",
        "`Experiment.train_steps` ['x'] must be a positive integer, or None.",
    ),
    'value of a scope that breaks a rule': (
        'valid/EvalSet.every_steps = 0',
        '`EvalSet.every_steps` [0] must be a positive integer, or None.',
    ),
    'setting that is named without its class': (
        "Experiment.model_fn = 'model'",
        "`model_fn` must be callable, given: ['model']. Give the function itself, in gin `@module.function`.",
    ),
}
SETS = """
Experiment.eval_sets = [@valid/EvalSet()]
valid/EvalSet.input_fn = @slips.input_fn
valid/EvalSet.name = 'valid'
test/EvalSet.every_steps = 5
"""


@pytest.mark.parametrize(('text', 'sentence'), CALLING.values(), ids=CALLING.keys())
def test_a_value_that_breaks_a_rule_is_told_with_its_binding(folder, text, sentence):
    sets = SETS if text.startswith('valid') else ''
    (folder / 'run.gin').write_text(f'\n{text}\n{sets}')
    (folder / 'base.gin').write_text(BASE)
    config.load(['base.gin', 'run.gin'])
    assert failure(config.build, 'Experiment') == RUN.format(text) + sentence


def test_a_binding_of_the_command_line_is_named_as_one(folder):
    (folder / 'base.gin').write_text(BASE)
    config.load(['base.gin'], ['Experiment.train_steps = -1'])
    assert failure(config.build, 'Experiment') == (
        'In the binding `Experiment.train_steps = -1`: `Experiment.train_steps` [-1] must be a positive integer, or '
        'None.'
    )


def test_a_value_that_no_text_binds_is_told_without_a_place():
    with (
        pytest.raises(errors.ConfigurationError, match=r'^`RunConfig.save_checkpoints_steps` \[-1\]'),
        config.gin_errors(),
    ):
        RunConfig(save_checkpoints_steps=-1)


def test_a_binding_after_the_lock_is_told_by_a_sentence():
    config.load([], ['slips.needs.other = 1'])
    line = late.__wrapped__.__code__.co_firstlineno + 2
    assert failure(config.build, 'slips.late') == (
        f"In {__file__}:{line}, `gin.bind_parameter('slips.needs.other', 2)`: gin is locked once the configuration is "
        'loaded, so that what a run was told stays what it did. Bind it in a gin file or on the command line, register '
        'it where its module is imported, or write `with gin.unlock_config():` around it.'
    )


def test_an_error_of_the_users_own_with_such_words_passes_through():
    with pytest.raises(RuntimeError, match='Attempted to modify locked Gin config'), config.gin_errors():
        raise RuntimeError('Attempted to modify locked Gin config.')


# What may be right, and is told all the same.


def test_bindings_and_scopes_that_nothing_uses_are_named(caplog):
    config.load([], ['slips.needs.value = 1', 'nowhere/slips.needs.other = 2', 'RATE = 1'])
    needs()
    config.check_all_used()
    sentence = (
        'These 2 gin bindings were never used: `RATE`, `nowhere/slips.needs.other`. Nothing was called under that name '
        'in that scope, or the caller or an inner scope gave another value.'
    )
    assert caplog.messages == [sentence]
    assert failure(config.check_all_used, True) == (
        f'{sentence} `Experiment.strict_bindings` refuses that: correct them or take them out.'
    )


def test_nothing_is_said_where_all_is_used(caplog):
    config.load([], ['slips.needs.value = 1'])
    needs()
    config.check_all_used(strict=True)
    assert not caplog.messages


def test_overridden_bindings_are_listed(folder, caplog):
    caplog.set_level('INFO')
    (folder / 'run.gin').write_text("include 'base.gin'\nslips.model_fn.rate = %RATE\nRATE = 0.2\n")
    config.load(['run.gin'], ['train/slips.model_fn.rate = 1.0', 'slips.model_fn.rate = 2.0'])
    assert caplog.messages == [
        '`RATE = 0.1` (base.gin, line 1) is overridden by `RATE = 0.2` (run.gin, line 3).',
        '`slips.model_fn.rate = %RATE` (run.gin, line 2) is overridden by `slips.model_fn.rate = 2.0` (the command '
        'line).',
    ]
    assert [each.name for each in config.overridden()] == ['RATE', 'slips.model_fn.rate']


def test_what_was_loaded_before_is_forgotten():
    config.load([], ['Experiment.train_steps = 5', 'Experiment.train_steps = 6'])
    config.clear()
    assert not config.overridden()
    config.load([], ['slips.needs.value = 1'])
    with pytest.raises(errors.ConfigurationError, match=r'^`Experiment.train_steps` \[-1\]'), config.gin_errors():
        raise errors.ConfigurationError('`Experiment.train_steps` [-1] must be a positive integer.')


# The overview.


def test_the_overview_tells_each_parameter_with_its_binding_default_and_description(folder):
    (folder / 'run.gin').write_text('N = 3\nslips.needs.value = %N\nvalid/EvalSet.name = "valid"\n')
    config.load(['run.gin'], ['slow/slips.needs.value = 4', 'tf.nn.relu.name = "r"'])
    with gin.unlock_config():
        gin.bind_parameter('slips.needs.other', 5)
    text = config.overview()
    assert text.startswith('Macros\n    N = 3    # run.gin, line 1\n\n')
    line = needs.__wrapped__.__code__.co_firstlineno
    chunk = next(chunk for chunk in text.split('\n\n') if chunk.startswith('slips.needs'))
    head, *lines = chunk.split('\n')
    assert re.fullmatch(rf'slips.needs    # .*tests/config/test_slips.py:{line}', head)
    assert lines == [
        '    value = %N    # run.gin, line 2; no default',
        '    slow/value = 4    # the command line; no default',
        '    other = 5    # bound by code; default 1',
    ]
    chunk = next(chunk for chunk in text.split('\n\n') if chunk.startswith('EvalSet'))
    assert (
        "\n    valid/name = 'valid'    # run.gin, line 3; default None\n    name    # default None\n        # Its name"
        in chunk
    )
    assert '\ntf.nn.relu    # ' in text and "name = 'r'" in text
    assert 'tensorflow.nn.relu' not in text
    assert ModeKeys.TRAIN not in text.split('\n\n')[0]

"""Tests of `framework.config`: every slip becomes a sentence, and what is right does what gin says it does."""

import enum
import functools
import itertools
import os
import re
import textwrap
import traceback

import gin
import pytest
import tensorflow as tf

from framework import config, errors

# gin's registry belongs to the process and takes a name once, so what the tests configure stands here.


def _plain(x):
    return x


@gin.configurable(module='config_test')
def model(features, hidden=64, *, rate=1e-3, act='relu', mode=None):
    del features, mode
    return hidden, rate, act


@gin.configurable(module='config_test')
def data(split='none', batch=8):
    return split, batch


@gin.configurable(module='config_test')
def needy(first, second, *, third):
    return first, second, third


@gin.configurable(module='config_test')
def required(value=gin.REQUIRED):
    return value


@gin.configurable(module='config_test')
def nest(inner):
    return inner()


@gin.configurable(module='config_test')
def raises(kind='TypeError'):
    if kind == 'own':
        raise errors.RunError('the loss is not finite')
    if kind == 'caller':
        return _plain()
    raise {'TypeError': TypeError, 'RuntimeError': RuntimeError, 'KeyError': KeyError}[kind]('of the body')


@gin.configurable(module='config_test', denylist=['mode'])
def guarded(mode='train', depth=1):
    return mode, depth


@gin.configurable('twin', module='config_test.left')
def left_twin(value=1):
    return value


@gin.configurable('twin', module='config_test.right')
def right_twin(value=2):
    return value


@gin.configurable(module='config_test')
class Root:
    def __init__(self, *, model_fn, sets=()):
        self.model_fn = model_fn
        self.sets = sets


@gin.register(module='config_test')
class Registered:
    def __init__(self, size):
        self.size = size


class Color(enum.Enum):
    RED = 1


_fresh = itertools.count()


@pytest.fixture(autouse=True)
def clear_gin():
    config.clear()
    yield
    config.clear()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working directory, importable as it is under `python -m`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).strip() + '\n')
    return os.path.relpath(path)


def package(folder, **modules):
    """Writes a package with a name of its own, for Python imports a name once."""
    name = f'config_test_package_{next(_fresh)}'
    write(folder / name / '__init__.py', '')
    for module, text in modules.items():
        write(folder / name / f'{module}.py', text)
    return name


def failure(files=(), bindings=()):
    with pytest.raises(errors.ConfigurationError) as caught:
        config.load(files, bindings)
    return str(caught.value)


# What a slip says.

SLIPS = {
    'unknown configurable': (
        'config_test.modle.hidden = 3',
        '`config_test.modle` is not a configurable. Did you mean `config_test.model`? '
        'Or is the `import` of its module missing?',
    ),
    'unknown configurable of a block': ('config_test.modle:\n  hidden = 3', 'Did you mean `config_test.model`?'),
    'unknown reference': (
        'Root.model_fn = @config_test.modle',
        '`@config_test.modle` is not a configurable. Did you mean `@config_test.model`?',
    ),
    'unknown reference in a scope': ('Root.model_fn = @train/config_test.dat', 'Did you mean `@config_test.data`?'),
    'unknown parameter': (
        'config_test.model.hiden = 3',
        '`config_test.model` has no parameter `hiden`. Did you mean `hidden`?',
    ),
    'unknown parameter of a block': ('config_test.model:\n  hiden = 3', 'has no parameter `hiden`.'),
    'unlike any parameter': ('config_test.data.zzz = 3', 'Valid names: `batch`, `split`.'),
    'unknown parameter of a class': ('Root.modelfn = 3', '`Root` has no parameter `modelfn`. Did you mean `model_fn`?'),
    'refused parameter': (
        "config_test.guarded.mode = 'eval'",
        '`config_test.guarded` keeps its parameter `mode` from gin.',
    ),
    'no parameter': ('config_test.model = 3', '`config_test.model` is a configurable, not a parameter.'),
    'unknown macro': (
        'RATE = 0.1\nconfig_test.model.rate = %RAET',
        '`%RAET` is a macro that nothing defines. Did you mean `%RATE`?',
    ),
    'no macros at all': ('config_test.model.rate = [%RATE]', 'A line `RATE = ...` would.'),
    'ambiguous selector': (
        'twin.value = 3',
        '`twin` is ambiguous: it may be `config_test.left.twin`, `config_test.right.twin`.',
    ),
    'ambiguous reference': ('Root.model_fn = @twin', '`@twin` is ambiguous'),
    'unquoted text': (
        'config_test.model.act = relu',
        "`relu` is not a Python literal. Write a text in quotes (`'relu'`), a configurable as `@relu`",
    ),
    'lower-case literal': ('config_test.model.act = true', 'Did you mean `True`?'),
    'literal of another language': ('config_test.model.act = null', 'Did you mean `None`?'),
    'arithmetic': ('config_test.model.hidden = 2 * 32', 'there is no arithmetic'),
    'no value': ('config_test.model.hidden =', 'A value is a Python literal'),
    'unhashable key': ('config_test.model.hidden = {[1]: 2}', "gin can't read it (unhashable type: 'list')"),
    'open quote': ("config_test.model.act = 'relu", "(a bracket or a quote is not closed|gin can't read it)"),
    'open bracket': ('config_test.model.hidden = [1, 2', 'a bracket or a quote is not closed'),
    'no equals sign': ('config_test.model.hidden 3', 'there is no `=` where gin expects one. A binding reads'),
    'only a name': ('hidden', 'there is no `=` where gin expects one'),
    'required and never given': (
        'config_test.model.hidden = %gin.REQUIRED',
        '`config_test.model.hidden` is required, and nothing gives it a value.',
    ),
    'wrong gin feature': ('from __gin__ import nothing', "gin can't import it"),
    'no file name': ('include nothing.gin', "`nothing` is not a Python literal|gin can't read it"),
}


def matches(expected, text):
    return re.search(expected if '|' in expected else re.escape(expected), text)


@pytest.mark.parametrize(('text', 'expected'), SLIPS.values(), ids=SLIPS.keys())
def test_a_slip_in_a_file_names_the_line_and_the_remedy(folder, text, expected):
    file = write(folder / 'base.gin', '# A comment.\n\nRoot.sets = [\n    1]\n' + text)
    message = failure([file])
    assert matches(expected, message)
    line = next(n for n, content in enumerate(text.splitlines(), start=5) if f'line {n}' in message)
    assert message.startswith(f'In base.gin, line {line}, `{text.splitlines()[line - 5].strip()}`: ')


@pytest.mark.parametrize(('text', 'expected'), SLIPS.values(), ids=SLIPS.keys())
def test_a_slip_on_the_command_line_names_the_binding(folder, text, expected):
    *before, last = [text] if ':\n' in text else text.split('\n')
    message = failure(bindings=[*before, last])
    assert matches(expected, message)
    assert message.startswith(f'In the binding `{last}`: ')


def test_the_line_is_that_of_the_reference_within_a_long_value(folder):
    file = write(folder / 'base.gin', 'Root.sets = [\n    @config_test.data(),\n    @config_test.dat(),\n]')
    assert failure([file]).startswith('In base.gin, line 3, `@config_test.dat(),`: `@config_test.dat` is not a')


def test_unquoted_text_on_the_command_line_is_told_about_the_shell():
    assert '"name.parameter=\'relu\'"' in failure(bindings=['config_test.model.act=relu'])


def test_a_missing_file_names_its_neighbour(folder):
    write(folder / 'configs/base.gin', '')
    message = failure(['configs/bsae.gin'])
    assert message.startswith('`configs/bsae.gin` is no gin file in `')
    assert message.endswith('Did you mean `configs/base.gin`?')


def test_a_missing_file_in_a_missing_folder_says_where_it_was_looked_for(folder):
    assert failure(['nowhere/base.gin']) == f'`nowhere/base.gin` is no gin file in `{folder}`.'


def test_a_folder_is_no_gin_file(folder):
    write(folder / 'configs/base.gin', '')
    assert '`configs` is no gin file' in failure(['configs'])


def test_a_binary_file_is_refused(folder):
    (folder / 'model.ckpt').write_bytes(b'\xff\xfe\x00')
    assert "`model.ckpt` can't be read" in failure(['model.ckpt'])


def test_a_missing_include_names_the_including_line(folder):
    write(folder / 'configs/base.gin', '')
    file = write(folder / 'configs/run.gin', "# first\ninclude 'bsae.gin'")
    message = failure([file])
    assert message.startswith(
        "In configs/run.gin, line 2, `include 'bsae.gin'`: `bsae.gin` is no gin file in `configs` or in `"
    )
    assert message.endswith('Did you mean `base.gin`?')


def test_a_slip_in_an_included_file_names_that_file(folder):
    write(folder / 'configs/base.gin', 'config_test.model.hiden = 3')
    file = write(folder / 'configs/run.gin', "include 'base.gin'")
    assert failure([file]).startswith('In configs/base.gin, line 1, `config_test.model.hiden = 3`: ')


def test_includes_in_a_circle_are_shown(folder):
    write(folder / 'a.gin', "include 'b.gin'")
    write(folder / 'b.gin', "include 'a.gin'")
    message = failure(['a.gin'])
    assert message.startswith("In b.gin, line 1, `include 'a.gin'`: the includes go in a circle: `a.gin` -> `b.gin`")


@pytest.mark.parametrize(
    ('text', 'line', 'circle'),
    [
        ('A = %A', 1, '`%A` -> `%A`'),
        ('B = 1\nA = %B\nB = %A', 3, '`%B` -> `%A` -> `%B`'),
        ('A = [%B]\nB = {"x": (1, %C)}\nC = %A', 1, '`%A` -> `%B` -> `%C` -> `%A`'),
        ('OUT = %A\nA = %B\nB = %A', 2, '`%A` -> `%B` -> `%A`'),
    ],
)
def test_macros_in_a_circle_are_shown(folder, text, line, circle):
    file = write(folder / 'base.gin', text)
    assert failure([file]) == (
        f'In base.gin, line {line}, `{text.splitlines()[line - 1]}`: the macros go in a circle: {circle}. '
        'Give one of them a value of its own.'
    )


def test_a_missing_module_names_its_neighbour(folder):
    name = package(folder, model='')
    file = write(folder / 'base.gin', f'import {name}.modle')
    assert failure([file]) == (
        f'In base.gin, line 1, `import {name}.modle`: there is no module `{name}.modle`. Did you mean `{name}.model`?'
    )


def test_a_missing_package_names_its_neighbour_in_the_working_directory(folder):
    name = package(folder, model='')
    file = write(folder / 'base.gin', f'import {name}x.model')
    assert re.search(f'there is no module `{name}x` in the working .* Did you mean `{name}`', failure([file]))


@pytest.mark.parametrize(
    ('text', 'error', 'match'),
    [
        ('import no_such_module_of_the_user', ModuleNotFoundError, 'no_such_module_of_the_user'),
        ("raise ValueError('of the module')", ValueError, '^of the module$'),
        ('def broken(:', SyntaxError, 'invalid syntax'),
        ('from gin import no_such_name', ImportError, 'no_such_name'),
    ],
)
def test_an_error_inside_an_imported_module_passes_through(folder, text, error, match):
    name = package(folder, model=text)
    file = write(folder / 'base.gin', f'import {name}.model')
    with pytest.raises(error, match=match) as caught:
        config.load([file])
    assert not isinstance(caught.value, errors.FrameworkError)


def test_dynamic_registration_explains_a_name_without_import(folder):
    file = write(folder / 'base.gin', 'from __gin__ import dynamic_registration\nnothere.model.hidden = 3')
    assert 'line 2, `nothere.model.hidden = 3`: `nothere.model` is unknown' in failure([file])


def test_loading_twice_is_refused():
    config.load([])
    assert 'already loaded and locked' in failure()


def test_an_error_of_a_users_finalize_hook_passes_through(monkeypatch):
    def refuse(bound):
        del bound
        raise ValueError('of the hook')

    monkeypatch.setattr(gin.config, '_FINALIZE_HOOKS', [refuse])
    with pytest.raises(ValueError, match=r'^of the hook$') as caught:
        config.load([])
    assert not isinstance(caught.value, errors.FrameworkError)


# What a right configuration does.


def test_files_bindings_scopes_macros_and_references_work(folder):
    name = package(folder, parts="import gin\n\n@gin.configurable(module='fresh')\ndef part(size=1):\n    return size")
    file = write(
        folder / 'base.gin',
        f"""
        import {name}.parts
        WIDTH = 32
        config_test.model.hidden = %WIDTH
        config_test.model:
          rate = 0.5
        config_test.data.batch = 16
        train/config_test.data.split = 'train'
        Root.model_fn = @config_test.model
        Root.sets = [@train/config_test.data(), @config_test.data, @fresh.part()]
        """,
    )
    config.load([file], ['WIDTH = 48', 'fresh.part.size = 7'])
    root = config.build('Root')
    assert root.model_fn(features=None) == (48, 0.5, 'relu')
    assert root.sets[0] == ('train', 16)
    assert root.sets[1]() == ('none', 16)
    assert root.sets[2] == 7


def test_gin_is_locked_after_loading():
    config.load([], ['config_test.data.batch = 1'])
    with pytest.raises(RuntimeError, match='locked'):
        gin.bind_parameter('config_test.data.batch', 2)


def test_an_include_beside_its_file_comes_before_the_working_directory(folder):
    write(folder / 'common.gin', 'config_test.data.batch = 1')
    write(folder / 'configs/common.gin', 'config_test.data.batch = 2')
    write(folder / 'configs/deep/middle.gin', "include '../common.gin'")
    file = write(folder / 'configs/run.gin', "include 'deep/middle.gin'")
    config.load([file])
    assert data() == ('none', 2)


def test_an_include_may_be_relative_to_the_working_directory(folder):
    write(folder / 'configs/common.gin', 'config_test.data.batch = 3')
    file = write(folder / 'configs/run.gin', "include 'configs/common.gin'\nconfig_test.data.split = 'x'")
    config.load([file])
    assert data() == ('x', 3)


def test_files_may_lie_wherever_tensorflow_reads():
    folder = f'ram://{next(_fresh)}/configs'
    tf.io.gfile.makedirs(f'{folder}/parts')
    for name, text in {
        'base': 'config_test.data.batch = 3\nconfig_test.data.split = "base"',
        'parts/more': 'config_test.data.batch = 4',
        'run': 'include "base.gin"\ninclude "parts/more.gin"\nconfig_test.data.split = "run"',
        'wrong': 'include "bsae.gin"',
    }.items():
        with tf.io.gfile.GFile(f'{folder}/{name}.gin', 'w') as file:
            file.write(text)
    config.load([f'{folder}/run.gin'])
    assert data() == ('run', 4)
    config.clear()
    assert failure([f'{folder}/wrong.gin']) == (
        f'In {folder}/wrong.gin, line 1, `include "bsae.gin"`: `bsae.gin` is no gin file in `{folder}` or in '
        f'`{os.getcwd()}`. Did you mean `base.gin`?'
    )


def test_the_statement_after_an_include_wins_and_the_one_before_loses(folder):
    write(folder / 'common.gin', "config_test.data.batch = 3\nconfig_test.data.split = 'common'")
    file = write(folder / 'run.gin', "config_test.data.batch = 1\ninclude 'common.gin'\nconfig_test.data.split = 'run'")
    config.load([file])
    assert data() == ('run', 3)


def test_one_file_may_be_included_twice(folder):
    write(folder / 'common.gin', 'config_test.data.batch = 3')
    file = write(folder / 'run.gin', "include 'common.gin'\ninclude 'common.gin'")
    config.load([file])
    assert data() == ('none', 3)


def test_dynamic_registration_works(folder):
    name = package(folder, parts='def part(size=1):\n    return size')
    file = write(
        folder / 'base.gin',
        f"""
        from __gin__ import dynamic_registration
        from {name} import parts
        parts.part.size = 5
        """,
    )
    config.load([file])
    assert config.build(f'{name}.parts.part') == 5


def test_constants_work():
    gin.constants_from_enum(Color, module='config_test')
    config.load([], ['config_test.model.act = %Color.RED'])
    assert model(None)[2] is Color.RED


def test_macros_may_share_a_macro():
    config.load([], ['A = 1', 'B = %A', 'C = [%A, %B]', 'config_test.data.batch = [%B, %C]'])
    assert data() == ('none', [1, [1, 1]])


def test_an_ambiguous_constant_is_explained():
    gin.constant('config_test.left.PI', 3.14)
    gin.constant('config_test.right.PI', 3)
    assert "Ambiguous constant selector 'PI'" in failure(bindings=['config_test.model.act = %PI'])


def test_an_unknown_constant_names_the_nearest():
    gin.constants_from_enum(Color, module='config_test')
    assert 'Did you mean `%Color.RED`?' in failure(bindings=['config_test.model.act = %Color.RDE'])


# What gin says when it calls.


def test_build_passes_scope_and_overrides():
    config.load([], ["valid/config_test.data.split = 'valid'", 'config_test.data.batch = 4'])
    assert config.build('valid/config_test.data') == ('valid', 4)
    assert config.build('config_test.data', batch=9) == ('none', 9)


def test_build_of_an_unknown_name_names_the_nearest():
    with pytest.raises(
        errors.ConfigurationError, match=r'`config_test\.dta` is not .* Did you mean `config_test\.data`'
    ):
        config.build('valid/config_test.dta')


@pytest.mark.parametrize(
    ('bindings', 'selector', 'expected'),
    [
        (
            [],
            'Root',
            '`Root` needs `model_fn`, and neither the gin configuration nor the caller gives it. '
            'Bind `Root.model_fn = ...`.',
        ),
        (
            ['config_test.needy.third = 3'],
            'config_test.needy',
            '`config_test.needy` needs `first`, `second`, and neither the gin configuration nor the caller gives them. '
            'Bind `config_test.needy.first = ...`, `config_test.needy.second = ...`.',
        ),
        ([], 'valid/config_test.required', 'Bind `valid/config_test.required.value = ...`.'),
        ([], 'Registered', 'Bind `Registered.size = ...`.'),
        (
            ['config_test.nest.inner = @train/config_test.required'],
            'config_test.nest',
            'Bind `train/config_test.required.value = ...`.',
        ),
        (['Root.model_fn = @Registered()'], 'Root', 'Bind `Registered.size = ...`.'),
    ],
)
def test_a_missing_argument_names_the_binding_to_write(bindings, selector, expected):
    config.load([], bindings)
    with pytest.raises(errors.ConfigurationError) as caught:
        config.build(selector)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ('kind', 'error'), [('TypeError', TypeError), ('RuntimeError', RuntimeError), ('KeyError', KeyError)]
)
def test_an_error_of_the_body_passes_with_its_traceback(kind, error):
    config.load([], [f"config_test.raises.kind = '{kind}'", 'config_test.nest.inner = @config_test.raises'])
    with pytest.raises(error, match='of the body') as caught:
        config.build('config_test.nest')
    assert not isinstance(caught.value, errors.FrameworkError)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == 'raises'


def test_a_missing_argument_inside_the_body_is_the_bodys_own_error():
    config.load([], ["config_test.raises.kind = 'caller'"])
    with pytest.raises(TypeError, match='missing 1 required positional argument'):
        config.build('config_test.raises')


def test_an_error_of_ours_keeps_its_words():
    config.load([], ["config_test.raises.kind = 'own'", 'config_test.nest.inner = @config_test.raises'])
    with pytest.raises(errors.RunError) as caught:
        config.build('config_test.nest')
    assert str(caught.value) == 'the loss is not finite'
    assert type(caught.value) is errors.RunError


def test_gin_errors_translates_a_later_call_and_leaves_a_plain_one():
    config.load([], [])
    with pytest.raises(errors.ConfigurationError, match=r'`config_test\.needy` needs'), config.gin_errors():
        needy(1)
    with pytest.raises(TypeError, match='missing 1 required'), config.gin_errors():
        _plain()


# What was configured, and what of it was used.

BINDINGS = (
    'WIDTH = 32',
    'config_test.model.hidden = %WIDTH',
    "config_test.model.act = 'a text that is longer than one line of eighty columns, which gin has to break somewhere'",
    "train/config_test.data.split = 'train'",
    'Root.model_fn = @config_test.model',
    'Root.sets = [@train/config_test.data(), (1, 2.5, None), {"a": %WIDTH}]',
)


@pytest.mark.parametrize('text_of', [config.config_text, config.operative_text])
def test_a_text_reloads_to_the_same_text(folder, text_of):
    config.load([], BINDINGS)
    config.build('Root').model_fn(features=None)
    text = text_of()
    assert 'Root.model_fn = @config_test.model' in text
    config.clear()
    config.load([write(folder / 'again.gin', text)])
    config.build('Root').model_fn(features=None)
    assert text_of() == text


LOADED_AGAIN = {
    'the order of a dict': ['config_test.model.act = {"valid": 1, "test": [{"z": 1, "a": 2}], "a": (3,)}'],
    'a long dict': [f'config_test.model.act = {dict.fromkeys((f"key {9 - i}" for i in range(9)), "a long value")!r}'],
    'infinities': ['config_test.model.act = [1e999, -1e999]', 'a/config_test.data.batch = 1e999'],
    'a macro of infinity': ['TOP = 1e999', 'b/TOP = {"z": -1e999, "a": %TOP}', 'config_test.data.batch = %b/TOP'],
    'references': ['Root.sets = {"z": @b/a/config_test.data(), "a": [@config_test.model, @s/gin.singleton()]}'],
    'twins': ['left.twin.value = 3', 'a/right.twin.value = 4', 'Root.sets = {"z": @left.twin, "a": @right.twin()}'],
    'texts': [r'config_test.data.split = "a\n\"b\" # no comment \\ é = 1"', 'config_test.data.batch = b"\\xff"'],
    'a registered class': ['Registered.size = 1'],
}


def values_as_text():
    return {name: repr(value) for name, value in config.bound_values().items()}


@pytest.mark.parametrize('case', LOADED_AGAIN)
def test_the_text_binds_the_same_values_when_it_is_loaded_again(folder, case):
    config.load([], LOADED_AGAIN[case])
    text, before = config.config_text(), values_as_text()
    assert config.left_out(text) == []
    config.clear()
    config.load([write(folder / 'again.gin', text)])
    assert values_as_text() == before
    assert config.config_text() == text


def test_the_text_of_dynamic_registration_loads_again(folder):
    name = package(folder, made='def f(a=1, b=None):\n    return a\n', other='def g():\n    return 1\n')
    lines = ['from __gin__ import dynamic_registration', f'import {name}.made', f'from {name} import other as second']
    lines += [f'{name}.made.f.a = {{"z": @second.g, "a": 1}}', f's/{name}.made.f.b = @second.g()']
    config.load([write(folder / 'first.gin', '\n'.join(lines))])
    text, before = config.config_text(), values_as_text()
    config.clear()
    config.load([write(folder / 'again.gin', text)])
    assert values_as_text() == before


def test_the_text_has_its_imports_and_names_what_it_leaves_out(folder):
    name = package(folder, made='import gin\n')
    gin.bind_parameter('config_test.data.split', lambda: None)
    config.load([write(folder / 'first.gin', f'import {name}.made\na/config_test.data.batch = 3')])
    text = config.config_text()
    assert config.imports_in(text) == [f'import {name}.made']
    assert config.left_out(text) == ['config_test.data.split']
    assert config.bindings_in(text) == {'a/data.batch': '3'}
    config.clear()
    config.load([write(folder / 'again.gin', text)])
    assert config.bound_values() == {'a/config_test.data.batch': 3}


def test_texts_are_empty_where_gin_is_not_used():
    data()
    assert (config.config_text(), config.operative_text()) == ('', '')


def unused_after(bindings, *calls):
    config.load([], bindings)
    for call in calls:
        call()
    return config.unused_bindings()


@pytest.mark.parametrize(
    ('bindings', 'calls', 'unused'),
    [
        (['config_test.data.batch = 1'], [data], []),
        (['config_test.data.batch = 1'], [], ['config_test.data.batch']),
        (["vlid/config_test.data.split = 'x'"], [data], ['vlid/config_test.data.split']),
        # An outer scope reaches in, and an inner one hides it.
        (['a/config_test.data.batch = 1'], [lambda: config.build('a/b/config_test.data')], []),
        (
            ['config_test.data.batch = 1', 'a/config_test.data.batch = 2'],
            [lambda: config.build('a/config_test.data')],
            ['config_test.data.batch'],
        ),
        (
            ['config_test.data.batch = 1', 'a/config_test.data.batch = 2'],
            [lambda: config.build('a/config_test.data'), data],
            [],
        ),
        # The caller's own argument wins, so the binding has no effect.
        (['config_test.data.batch = 1'], [lambda: data(batch=2)], ['config_test.data.batch']),
        (["config_test.data.split = 'x'"], [lambda: data('y')], ['config_test.data.split']),
        # Macros are used by the call that reads them, through other macros too.
        (['A = 1', 'B = %A', 'config_test.data.batch = %B'], [data], []),
        (['A = 1'], [data], ['A']),
        (['A = 1', 'config_test.data.batch = %A'], [], ['A', 'config_test.data.batch']),
        # A reference counts as the binding of the one who holds it, and calls count by their scope.
        (
            ['Root.model_fn = @train/config_test.data', 'train/config_test.data.batch = 3'],
            [lambda: config.build('Root')],
            ['train/config_test.data.batch'],
        ),
        (
            ['Root.model_fn = @train/config_test.data', 'train/config_test.data.batch = 3'],
            [lambda: config.build('Root').model_fn()],
            [],
        ),
        (
            ['Root.model_fn = @s/gin.singleton()', 's/gin.singleton.constructor = @config_test.data'],
            [lambda: config.build('Root')],
            [],
        ),
    ],
)
def test_unused_bindings(bindings, calls, unused):
    assert unused_after(bindings, *calls) == unused


def test_the_report_of_unused_bindings_names_them():
    assert config.unused_report([]) == ''
    assert config.unused_report(['a.b']).startswith('This gin binding was never used: `a.b`. Nothing was called')
    assert config.unused_report(['a.b', 'LR']).startswith('These 2 gin bindings were never used: `a.b`, `LR`.')


def test_bound_parameters_of_functions_scoped_references_and_partials():
    config.load(
        [],
        [
            'config_test.data.batch = 4',
            "train/config_test.data.split = 'x'",
            'Root.model_fn = @train/config_test.data',
            'Root.sets = {"plain": @config_test.data, "other": [@other/config_test.data]}',
        ],
    )
    root = config.build('Root')
    assert config.bound_parameters(root.model_fn) == {'batch', 'split'}
    assert config.bound_parameters(functools.partial(functools.partial(root.model_fn), batch=1)) == {'batch', 'split'}
    assert config.bound_parameters(functools.wraps(root.model_fn)(lambda: None)) == {'batch', 'split'}
    assert config.bound_parameters(root.sets['plain']) == {'batch'}
    assert config.bound_parameters(root.sets['other'][0]) == {'batch'}
    assert config.bound_parameters(data) == {'batch'}


@pytest.mark.parametrize('function', [lambda: None, print, Registered(1), functools.partial(print), {}.get, None])
def test_nothing_is_bound_for_what_gin_does_not_know(function):
    config.load([], ['config_test.data.batch = 4'])
    assert config.bound_parameters(function) == frozenset()


def test_a_registered_function_is_bound_only_through_its_reference():
    config.load([], ['Registered.size = 3', 'Root.model_fn = @Registered'])
    assert config.bound_parameters(Registered) == frozenset()
    assert config.bound_parameters(config.build('Root').model_fn) == {'size'}


def test_values_that_the_texts_drop_are_named():
    gin.bind_parameter('config_test.data.split', lambda: None)
    gin.bind_parameter('a/config_test.data.batch', float('nan'))
    config.load([], ['config_test.data.batch = 3', 'config_test.model.act = @config_test.data'])
    assert config.dropped_bindings() == ['a/config_test.data.batch', 'config_test.data.split']


def test_clear_forgets_bindings_and_constants_and_unlocks():
    gin.constant('config_test.PI', 3.14)
    config.load([], ['config_test.data.batch = 3'])
    config.clear()
    gin.constant('config_test.PI', 3.14)
    config.load([], [])
    assert data() == ('none', 8)

"""Reports on runs that ended, still run or were killed: tables, pictures and the page."""

import base64
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib import image

from framework import errors, run_dir
from framework.report import __main__ as binary
from framework.report import charts, page, runs, tables


def make_run(path, *, result=True, metrics=(), config='', torn=False, step=20):
    """Writes what a run leaves: `metrics` are (step, stream, metrics)."""
    path.mkdir(parents=True)
    directory = run_dir.RunDir(path)
    lines = [json.dumps({'step': s, 'stream': stream, 'metrics': m, 'time': 0.0}) + '\n' for s, stream, m in metrics]
    (path / 'metrics.jsonl').write_text(''.join(lines) + ('{"step": 99, "str' if torn else ''))
    phases = [{'phase': 'train', 'step': step, 'secs': 60.0}, {'phase': 'evaluate', 'step': step, 'secs': 5.4}]
    (path / 'timeline.jsonl').write_text(''.join(json.dumps(phase) + '\n' for phase in phases))
    (path / 'config.gin').write_text(config)
    (path / 'provenance.json').write_text('{"start_time": "2026-01-02T03:04:05.678+00:00"}')
    if result:
        content = {'status': 'done', 'stop_reason': f'reached step {step} of {step}', 'global_step': step}
        (path / 'result.json').write_text(json.dumps(content))
    return directory


METRICS = [
    (10, 'train', {'loss': 2.0}),
    (10, 'valid', {'loss': 1.5, 'accuracy': 0.5}),
    (10, 'test', {'loss': 1.6, 'accuracy': 0.25}),
    (20, 'train', {'loss': 1.0}),
    (20, 'valid', {'loss': 1.75, 'accuracy': 0.4, 'spread': 3}),
    (20, 'test', {'loss': 'NaN', 'accuracy': 0.75}),
]


# What is known of a run.


def test_a_run_that_ended_is_read(tmp_path):
    make_run(tmp_path / 'a', metrics=METRICS, config="f.x = 1\nvalid/f.x = [\n    'y']\n")
    (run,) = runs.find([str(tmp_path / 'a')])
    assert (run.name, run.status, run.why, run.step) == ('a', 'done', 'reached step 20 of 20', 20)
    assert (run.secs, run.started[:10]) == (65.4, '2026-01-02')
    assert run.bindings == {'f.x': '1', 'valid/f.x': "[ 'y']"}
    found = {series.name: (series.last, series.best) for series in run.metrics()}
    nan = found.pop('test/loss')
    assert np.isnan(nan[0]) and nan[1] == (10, 1.6)
    assert found == {
        'train/loss': (1.0, (20, 1.0)),
        'valid/loss': (1.75, (10, 1.5)),
        'valid/accuracy': (0.4, (10, 0.5)),
        'valid/spread': (3.0, None),
        'test/accuracy': (0.75, (20, 0.75)),
    }


def test_a_run_that_was_killed_has_crashed_and_keeps_what_it_wrote(tmp_path):
    directory = make_run(tmp_path / 'a', result=False, metrics=METRICS[:3], torn=True, step=12)
    (tmp_path / 'a/lock').touch()
    for left in ('', f'999999999 on {platform.node()}', f'{os.getpid()} on {platform.node()}', 'rubbish'):
        (tmp_path / 'a/lock.pid').write_text(left)
        (run,) = runs.find([directory.path])
        assert (run.status, run.step) == ('crashed', 12)
        assert run.curves['valid']['accuracy'] == [0.5]


def test_a_run_that_is_held_is_running_whatever_it_left_before(tmp_path):
    directory = make_run(tmp_path / 'a')
    with directory.locked():
        (run,) = runs.find([directory.path])
        assert (run.status, run.why) == ('running', f'{os.getpid()} on {platform.node()}')
    assert runs.find([directory.path])[0].status == 'done'


def test_a_run_that_another_machine_holds_counts_as_running(tmp_path):
    directory = make_run(tmp_path / 'a', result=False)
    (tmp_path / 'a/lock.pid').write_text('12 on another')
    assert (runs.find([directory.path])[0].status, directory.holder()) == ('running', '12 on another')


def test_a_run_that_has_just_begun_is_one(tmp_path):
    (tmp_path / 'a/commits').mkdir(parents=True)
    (run,) = runs.find([str(tmp_path / 'a')])
    assert (run.status, run.step, list(run.metrics())) == ('crashed', 0, [])


# Which directories are runs.


def test_directories_of_runs_stand_for_the_runs_in_them(tmp_path):
    for name in ('0001-s1', '0000-s2', '0000-s1'):
        make_run(tmp_path / 'sweep/trials' / name)
    (tmp_path / 'sweep/trials/notes').mkdir()
    make_run(tmp_path / 'other/a')
    found = runs.find([str(tmp_path / name) for name in ('other', 'sweep', 'sweep/trials/0001-s1')])
    assert [run.name for run in found] == ['a', '0000-s1', '0000-s2', '0001-s1']


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path):
    for name in ('x/run', 'y/run', 'y/other'):
        make_run(tmp_path / name)
    found = runs.find([str(tmp_path / name) for name in ('x/run', 'y/run', 'y/other', 'x/../x/run')])
    assert [run.name for run in found] == ['x/run', 'y/run', 'y/other']


@pytest.mark.parametrize(
    ('name', 'sentence'),
    [
        ('nowhere', '`nowhere` is not there, and a report needs run directories.'),
        ('file', '`file` is a file, and a report needs run directories.'),
        ('empty', '`empty` is no run directory and holds none: it has neither `metrics.jsonl` nor `result.json`.'),
    ],
)
def test_what_is_no_run_is_refused(tmp_path, monkeypatch, name, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'file').touch()
    (tmp_path / 'empty').mkdir()
    with pytest.raises(errors.RunDirectoryError) as caught:
        runs.find([name])
    assert str(caught.value) == sentence


def test_a_damaged_result_is_named(tmp_path):
    directory = make_run(tmp_path / 'a')
    (tmp_path / 'a/result.json').write_text('{"status"')
    with pytest.raises(errors.RunDirectoryError, match=r"a/result.json` can't be read as JSON"):
        runs.find([directory.path])


# The tables.


@pytest.fixture
def two(tmp_path):
    make_run(tmp_path / 'a', metrics=METRICS, config='f.x = 1\nf.y = 2\nf.only = 5\n')
    make_run(tmp_path / 'b', metrics=METRICS[:2], config='f.x = 1\nf.y = 3\n', result=False, step=4000)
    return runs.find([str(tmp_path)])


def test_the_tables_tell_how_each_run_went(two):
    started = '2026-01-02T03:04:05'
    assert tables.overview(two).lines == [
        ('a', 'done', '20', '1 min 05 s', started, 'reached step 20 of 20'),
        ('b', 'crashed', '4000', '1 min 05 s', started, 'it left no result, and no process holds it'),
    ]
    lines = tables.metrics(two).lines
    assert ('valid/accuracy', 'a', '0.4000', '0.5000', '10') in lines
    assert ('valid/accuracy', 'b', '0.5000', '0.5000', '10') in lines
    assert ('valid/spread', 'a', '3', '', '') in lines or ('valid/spread', 'a', '3.0000', '', '') in lines
    assert lines[-1][0] == 'train/loss'


def test_the_bindings_that_differ_are_told_and_no_others(two):
    found = tables.differences(two)
    assert found.columns == ('binding', 'a', 'b')
    assert found.lines == [('f.only', '5', ''), ('f.y', '2', '3')]
    assert not tables.differences(two[:1]).lines


# The pictures.


def test_there_is_a_picture_for_each_metric_over_all_streams_and_runs(two):
    drawn = charts.draw(two)
    assert [(chart.metric, chart.file_name) for chart in drawn] == [
        ('loss', 'loss.png'),
        ('accuracy', 'accuracy.png'),
        ('spread', 'spread.png'),
    ]
    assert drawn[0].note == 'Not finite, and left out: 1 of test/loss.' and not drawn[1].note
    for chart in drawn:
        pixels = image.imread(io.BytesIO(chart.png), format='png')
        assert pixels.shape[0] > 300 and len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 10


def test_names_that_are_no_file_names_have_files_of_their_own(tmp_path):
    metrics = {'a/b': 1.0, 'a_b': 2.0, '../x': 3.0, '$x^': 4.0, '_hidden': 5.0, 'infinite': float('inf')}
    make_run(tmp_path / 'a', metrics=[(1, 'valid', metrics)])
    names = [chart.file_name for chart in charts.draw(runs.find([str(tmp_path / 'a')]))]
    assert names == ['a_b.png', 'a_b_2.png', '_x.png', '_x_.png', '_hidden.png', 'infinite.png']


# The page.


class _Parsed(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.texts, self.images, self.addresses = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.addresses += [found[name] for name in ('href', 'src') if name in found]
        if tag == 'img':
            self.images.append(found)

    def handle_data(self, data):
        self.texts.append(data.strip())


def test_the_page_holds_all_and_needs_nothing_else(two):
    drawn = charts.draw(two)
    text = page.render('two', [('Runs', tables.overview(two)), ('Differ', tables.differences(two))], drawn)
    parsed = _Parsed(text)
    for expected in ('a', 'crashed', '1 min 05 s', 'f.only', 'reached step 20 of 20'):
        assert expected in parsed.texts
    assert all(address.startswith('data:image/png;base64,') for address in parsed.addresses)
    pictures = [base64.b64decode(each['src'].partition(',')[2]) for each in parsed.images]
    assert pictures == [chart.png for chart in drawn]
    assert 'Not finite, and left out: 1 of test/loss.' in parsed.texts


def test_texts_of_users_are_no_markup():
    table = tables.Table(('<b>',), [('<script>alert(1)</script>',)])
    text = page.render('<i>', [('<u>', table)], [charts.Chart('"><b>', 'x.png', b'', '<s>')])
    assert not re.search(r'<(script|b|i|u|s)>', text)


def test_a_page_without_metrics_says_so():
    assert 'There are no metrics yet.' in page.render('x', [('Runs', tables.Table((), []))], [])


# The binary.


def test_the_report_is_written_and_nothing_else(two, tmp_path, capsys):
    def contents():
        return {str(path): path.stat().st_mtime_ns for name in 'ab' for path in (tmp_path / name).rglob('*')}

    before = contents()
    files = binary.write([str(tmp_path / 'a'), str(tmp_path / 'b')], str(tmp_path / 'x/out'))
    assert [os.path.basename(file) for file in files] == ['loss.png', 'accuracy.png', 'spread.png', 'report.html']
    assert sorted(os.listdir(tmp_path / 'x/out')) == sorted(os.path.basename(file) for file in files)
    assert contents() == before
    out = capsys.readouterr().out
    assert out.startswith('Runs\n+') and '\nMetrics\n+' in out and '\nBindings that differ\n+' in out
    assert '1 min 05 s' in out and '| f.y ' in out


def test_a_single_run_has_nothing_that_differs(tmp_path, capsys):
    make_run(tmp_path / 'a')
    binary.write([str(tmp_path / 'a')], str(tmp_path / 'out'))
    out = capsys.readouterr().out
    assert 'Metrics\nNone.\n' in out and 'differ' not in out


def test_a_place_that_can_not_be_written_is_named(tmp_path):
    make_run(tmp_path / 'a')
    (tmp_path / 'file').touch()
    with pytest.raises(errors.RunDirectoryError, match=r"`--out` \[.*file\] can't be created or written"):
        binary.write([str(tmp_path / 'a')], str(tmp_path / 'file'))


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    make_run(tmp_path / 'a')
    monkeypatch.setitem(sys.modules, 'jinja2', None)
    monkeypatch.delitem(sys.modules, 'framework.report.page')
    monkeypatch.delattr('framework.report.page')
    with pytest.raises(errors.ConfigurationError, match=r'`jinja2` is not installed.*pip install'):
        binary.write([str(tmp_path / 'a')], str(tmp_path / 'out'))


@pytest.mark.parametrize(('argv', 'code', 'said'), [([], 2, 'takes run directories'), (['nowhere'], 3, 'is not there')])
def test_slips_are_sentences(argv, code, said, capsys, monkeypatch):
    monkeypatch.setattr(binary.flags, 'FLAGS', type('Flags', (), {'out': 'report'}))
    with pytest.raises(SystemExit) as caught:
        binary.main(['report', *argv])
    assert caught.value.code == code
    error = capsys.readouterr().err
    assert error.startswith('error: ') and said in error


@pytest.mark.slow
def test_a_browser_shows_the_page(two, tmp_path):
    browser = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')
    if browser is None:
        pytest.skip('There is no Chromium.')
    command = [sys.executable, '-m', 'framework.report', str(tmp_path / 'a'), str(tmp_path / 'b'), '--out=out']
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment = {**os.environ, 'PYTHONPATH': root}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=120, stdout=subprocess.DEVNULL)
    html = (tmp_path / 'out/report.html').read_text()
    # The browser tells what it made of the pictures by the title of the page.
    probe = (
        '<script>onload=()=>{document.title=[...document.images].map(i=>i.naturalWidth+"x"+i.naturalHeight)}</script>'
    )
    (tmp_path / 'probe.html').write_text(html + probe)
    options = [
        '--headless',
        '--no-sandbox',
        '--disable-gpu',
        f'--user-data-dir={tmp_path}/profile',
        '--window-size=900,2500',
    ]
    shot = tmp_path / 'shot.png'

    def browse(*more):
        run = subprocess.run([browser, *options, *more], check=True, timeout=120, capture_output=True, text=True)
        return run.stdout

    dom = browse('--dump-dom', f'file://{tmp_path}/probe.html')
    assert '<title>880x495,880x495,880x495</title>' in dom
    assert dom.count('<tr>') == 2 + 1 + len(tables.metrics(two).lines) + 1 + 2 + 1
    browse(f'--screenshot={shot}', f'file://{tmp_path}/out/report.html')
    pixels = image.imread(shot)[..., :3]
    rows_with_ink = (pixels.min(axis=2) < 0.5).any(axis=1)
    assert rows_with_ink[:200].any() and rows_with_ink[1000:].any()
    colours = {tuple((255 * pixel).astype(int)) for pixel in pixels[rows_with_ink].reshape(-1, 3)[::7]}
    assert (31, 119, 180) in colours and (255, 127, 14) in colours  # the lines of the two runs

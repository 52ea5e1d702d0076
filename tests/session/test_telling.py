"""Writers of the user's."""

import pytest

from framework import Experiment, RunConfig, config, errors, testing
from framework.reporting import csv_file, rows, writers

DATA = testing.array_input_fn(*testing.blobs(20), 4)


def experiment(directory, steps=6, **settings):
    return Experiment(
        model_fn=testing.linear_model_fn,
        train_input_fn=DATA,
        eval_sets={'valid': testing.array_input_fn(*testing.blobs(10), 4)},
        train_steps=steps,
        eval_every_steps=2,
        seed=1,
        model_dir=str(directory),
        run_config=RunConfig(save_checkpoints_steps=3, log_step_count_steps=2),
        **settings,
    )


def test_a_writer_is_told_from_the_start_to_the_end_and_closed(tmp_path):
    made = []

    class Mine(testing.RecordingWriter):
        def __init__(self, directory):
            super().__init__()
            self.directory, self.closed = directory.path, False
            made.append(self)

        def close(self):
            self.closed = True

    for step in (4, 6):
        result = experiment(tmp_path, step, writers=[Mine]).train_and_evaluate()
    first, second = made  # one a start
    assert first.directory == str(tmp_path) and first.closed and second.closed
    kinds = [type(row) for row in second.rows if not isinstance(row, rows.PhaseRow | rows.SummaryRow)]
    assert kinds == [rows.StartRow, rows.StepRow, rows.PassRow, rows.RunResult]
    assert (first.rows[0].step, second.rows[0].step) == (0, 4)
    assert second.rows[0].charts == ['accuracy', 'loss', 'loss_per_example']
    assert second.rows[-1].metrics == result.metrics


def test_an_error_of_a_writer_ends_the_run(tmp_path):
    class Mine(writers.Writer):
        def write_pass(self, row):
            raise ValueError('no network')

    with pytest.raises(ValueError, match='no network'):
        experiment(tmp_path, writers=[lambda directory: Mine()]).train_and_evaluate()


def test_the_csv_file_goes_back_to_the_commit_of_a_run_that_goes_on(tmp_path):
    def fails(directory):
        class Fails(writers.Writer):
            def write_pass(self, row):
                if row.step == 4:
                    raise ValueError('here')

        return Fails()

    with pytest.raises(ValueError, match='here'):
        experiment(tmp_path / 'a', writers=[csv_file.CsvWriter, fails]).train_and_evaluate()
    assert '4,valid,loss' in (tmp_path / 'a' / 'metrics.csv').read_text()  # what the commit of step 3 knows nothing of
    for name in ('a', 'b'):
        experiment(tmp_path / name, writers=[csv_file.CsvWriter]).train_and_evaluate()
    told = [(tmp_path / name / 'metrics.csv').read_text() for name in ('a', 'b')]
    assert told[0] == told[1] and told[0].count('4,valid,loss,') == 1


def test_gin_names_the_class_of_a_writer(tmp_path):
    config.load([], ['Experiment.writers = [@CsvWriter]'])
    experiment(tmp_path).train()
    assert (tmp_path / 'metrics.csv').read_text().startswith('step,stream,metric,value\n2,train,loss,')


@pytest.mark.parametrize('given', [csv_file.CsvWriter, [writers.Writer()], ['csv'], None])
def test_what_is_no_list_of_functions_is_refused(tmp_path, given):
    with pytest.raises(errors.ConfigurationTypeError, match=r'`Experiment.writers` \[.*\] must be a list of functions'):
        experiment(tmp_path, writers=given)


def test_a_function_that_returns_no_writer_is_refused_before_the_first_step(tmp_path):
    with pytest.raises(errors.ConfigurationTypeError, match=r'returned \[None\], and must return a `framework.Writer`'):
        experiment(tmp_path, writers=[lambda directory: None]).train()
    assert not (tmp_path / 'timeline.jsonl').exists()

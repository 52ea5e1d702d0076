"""Settings of what follows from a metric."""

import pytest

from framework import errors, policies
from framework.policies import EarlyStopping, KeepBest, ReduceOnPlateau


@pytest.mark.parametrize(
    ('name', 'mode'),
    [
        ('valid/loss', 'min'),
        ('valid/loss_per_example', 'min'),
        ('eval/mean_squared_error', 'min'),
        ('valid/rmse', 'min'),
        ('valid/top5/error', 'min'),
        ('valid/accuracy', 'max'),
        ('valid/auc', 'max'),
        ('valid/head_a/accuracy', 'max'),
        ('loss/accuracy', 'max'),  # the set's name says nothing
    ],
)
def test_the_direction_follows_from_well_known_names(name, mode):
    assert KeepBest(metric=name).followed().mode == mode


@pytest.mark.parametrize('name', ['valid/score', 'valid/n', 'valid/accuracy_loss', 'valid/glossary', 'valid/macaw'])
def test_a_direction_that_no_name_tells_must_be_given(name):
    with pytest.raises(
        errors.ConfigurationError, match=r"`KeepBest.mode` \['auto'\] can not tell.*Set `mode` to 'max'"
    ):
        KeepBest(metric=name)
    assert KeepBest(metric=name, mode='max').followed().mode == 'max'


@pytest.mark.parametrize('kind', [KeepBest, EarlyStopping, ReduceOnPlateau])
@pytest.mark.parametrize('name', ['loss', '/loss', 'valid/', '', None, 3])
def test_a_metric_names_a_set_and_a_metric(kind, name):
    with pytest.raises(errors.ConfigurationError, match=r'must be the name of a set and of one of its metrics'):
        kind(metric=name)


def test_a_metric_with_slashes_in_its_name_is_one_of_its_set():
    metric = KeepBest(metric='valid/head/loss').followed()
    assert (metric.stream, metric.key) == ('valid', 'head/loss')


@pytest.mark.parametrize(
    ('kind', 'settings', 'text'),
    [
        (KeepBest, {'keep': 0}, r'`KeepBest.keep` \[0\] must be an integer, 1 or more'),
        (KeepBest, {'keep': True}, r'`KeepBest.keep` \[True\]'),
        (KeepBest, {'export': 1}, r'`KeepBest.export` \[1\] must be True or False'),
        (KeepBest, {'mode': 'maxx'}, r'`KeepBest.mode` \[\'maxx\'\] is no such choice. Did you mean `max`'),
        (EarlyStopping, {'patience_evals': 0}, r'`EarlyStopping.patience_evals` \[0\] must be an integer, 1 or more'),
        (EarlyStopping, {'min_delta': -1}, r'`EarlyStopping.min_delta` \[-1\] must be a number, 0 or more'),
        (EarlyStopping, {'min_delta': float('nan')}, r'`EarlyStopping.min_delta` \[nan\]'),
        (EarlyStopping, {'min_steps': -1}, r'`EarlyStopping.min_steps` \[-1\]'),
        (EarlyStopping, {'restore_best': 'yes'}, r"`EarlyStopping.restore_best` \['yes'\] must be True or False"),
        (ReduceOnPlateau, {'factor': 1.0}, r'`ReduceOnPlateau.factor` \[1.0\] must be a number from 0 to below 1'),
        (ReduceOnPlateau, {'patience_evals': None}, r'`ReduceOnPlateau.patience_evals` \[None\]'),
        (ReduceOnPlateau, {'cooldown_evals': 1.5}, r'`ReduceOnPlateau.cooldown_evals` \[1.5\]'),
        (ReduceOnPlateau, {'variable': ''}, r"`ReduceOnPlateau.variable` \[''\] must be the name of a variable"),
    ],
)
def test_a_slip_is_refused(kind, settings, text):
    with pytest.raises(errors.ConfigurationError, match=text):
        kind(metric='valid/loss', **settings)


def test_best_weights_that_come_back_are_kept():
    chosen = policies.agreed(None, EarlyStopping(metric='valid/loss', restore_best=True), None)
    assert chosen.keep_best == KeepBest(metric='valid/loss', mode='min')


def test_best_weights_of_another_metric_can_not_come_back():
    stopping = EarlyStopping(metric='valid/loss', restore_best=True)
    with pytest.raises(
        errors.ConfigurationError, match=r'needs `KeepBest` of the same metric, which keeps `valid/auc`'
    ):
        policies.agreed(KeepBest(metric='valid/auc'), stopping, None)

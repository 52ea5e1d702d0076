"""Packaging: `pip install .` installs the import name `framework` and nothing else."""

import pathlib

import setuptools

EXAMPLES = ['scikit-learn>=1.5']
PLOTS = ['jinja2>=3.1', 'matplotlib>=3.8']
TEST = [
    *('dm-sonnet>=2.0.2', 'pandas>=2', 'pyte>=0.8', 'pytest>=8', 'pytest-xdist>=3.6', 'setuptools>=77', 'tf-slim>=1.1'),
    *EXAMPLES,
    *PLOTS,
]

setuptools.setup(
    name='estimator-framework',
    version='0.1.0',
    description='Estimator-style experiments in one graph and one monitored session, configured by gin.',
    long_description=(pathlib.Path(__file__).parent / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    python_requires='>=3.11,<3.14',
    packages=setuptools.find_packages(include=['framework', 'framework.*']),
    package_data={'framework': ['py.typed']},
    install_requires=[
        'absl-py>=2,<3',
        'filelock>=3.12',
        'gin-config>=0.5,<0.6',
        'numpy>=1.26',
        'rich>=13,<16',
        'tensorboard>=2.20,<2.22',
        'tensorflow>=2.21,<2.22',
        'tf-keras>=2.21,<2.22',
    ],
    extras_require={
        'gpu': ['tensorflow[and-cuda]>=2.21,<2.22'],
        'examples': EXAMPLES,
        'plots': PLOTS,
        'test': TEST,
        'dev': [*TEST, 'import-linter>=2', 'mypy>=1.11', 'pre-commit>=3', 'ruff>=0.6'],
    },
    classifiers=[
        'Intended Audience :: Science/Research',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Programming Language :: Python :: 3.13',
        'Typing :: Typed',
    ],
)

"""Loading a state warns of a value that differs from the saved run's and is no argument."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.processes.purity.ways import listening
from tests.unit.purity.users_modules import Program


def warnings_at_load(name: str, source: str, change: str = "") -> list[str]:
    """Return the warnings of a second program that loads the state of a first one.

    Args:
        name: of the user's module.
        source: code of that module, which both programs import.
        change: code that the second program runs in the module before it loads the state.
    """
    with listening() as heard, ExitStack() as stack:
        first = Program(source, 1, stack, name)
        for _ in range(4):
            next(first.augmenter)
        state = json.loads(json.dumps(first.augmenter.state_dict()))
        second = Program(source, 2, stack, name)
        exec(change, vars(second.module))
        second.augmenter.load_state_dict(state)
        for _ in range(4):
            next(second.augmenter)
    return heard


class Case(NamedTuple):
    """A pipeline with a value that differs between two programs.

    Attributes:
        source: code of the user's module.
        name: path of the value in the warning.
        change: code that the second program runs in the module before it loads the state.
    """

    source: str
    name: str
    change: str = ""


#: Values that are drawn while the module is imported, and so differ without a change.
DRAWN = {
    "a number": Case(
        """
class Turn:
    def __init__(self):
        self.angle = np.random.rand()
    def __call__(self, x):
        return {"x": x * self.angle}
transform = Turn()
""",
        "transform.angle",
    ),
    "an array": Case(
        """
class Mix:
    def __init__(self):
        self.w = np.random.rand(5, 5)
    def __call__(self, x):
        return {"x": x * self.w.sum()}
transform = Mix()
""",
        "transform.w",
    ),
    "a tensor": Case(
        """
class Mix:
    def __init__(self):
        self._bias = torch.randn(100, 100)
    def __call__(self, x):
        return {"x": x + float(self._bias.mean())}
transform = Mix()
""",
        "transform._bias",
    ),
    "an order of cases": Case(
        """
class Cases(Loader):
    def __init__(self):
        self.cases = list(range(200))
        random.shuffle(self.cases)
        self.folder = "/data/here"
    def __next__(self):
        return {"x": np.array(self.cases[np.random.randint(200)])}
loader = Cases()
""",
        "data_loader.cases",
    ),
    "a fold": Case(
        """
class Cases(Loader):
    def __init__(self):
        self.fold = set(random.sample(range(1000), 60))
    def __next__(self):
        return {"x": np.random.rand(3) + min(self.fold)}
loader = Cases()
""",
        "data_loader.fold",
    ),
    "which keys a dict has": Case(
        """
class Cases(Loader):
    def __init__(self):
        self.weights = dict.fromkeys(random.sample("abcdefghijklmnop", 4), 1.0)
    def __next__(self):
        return {"x": np.random.rand(3), "case": sorted(self.weights)[0]}
loader = Cases()
""",
        "data_loader.weights.keys()",
    ),
    "an attribute that a method reads which an attribute stands for": Case(
        """
class Scale:
    def __init__(self):
        self.gain = np.random.rand()
        self.change = {"scale": self.scaled}["scale"]
    def scaled(self, x):
        return x * self.gain
    def __call__(self, x):
        return {"x": self.change(x)}
transform = Scale()
""",
        "transform.gain",
    ),
    "an attribute that a base class reads": Case(
        """
class Base:
    def __call__(self, x):
        return {"x": self.scaled(x)}
    def scaled(self, x):
        return x * self.gain
class Scale(Base):
    def __init__(self):
        self.gain = np.random.rand()
transform = Scale()
""",
        "transform.gain",
    ),
    "an attribute that a property reads": Case(
        """
class Scale:
    def __init__(self):
        self._gain = np.random.rand()
    @property
    def gain(self):
        return self._gain
    def __call__(self, x):
        return {"x": x * self.gain}
transform = Scale()
""",
        "transform._gain",
    ),
    "an attribute that a function reads in a method of another name": Case(
        """
def scaled(scale, x):
    return {"x": x * scale.gain}
class Scale:
    __call__ = scaled
    def __init__(self):
        self.gain = np.random.rand()
transform = Scale()
""",
        "transform.gain",
    ),
    "an attribute that is named by a text": Case(
        """
class Scale:
    def __init__(self):
        self.gain = np.random.rand()
    def __call__(self, x):
        return {"x": x * float("{0.gain}".format(self))}
transform = Scale()
""",
        "transform.gain",
    ),
    "an attribute that getattr reads": Case(
        """
class Scale:
    def __init__(self):
        self.gain_ct = np.random.rand()
    def __call__(self, x):
        return {"x": x * getattr(self, "_".join(("gain", "ct")))}
transform = Scale()
""",
        "transform.gain_ct",
    ),
    "an attribute that a library's function reads": Case(
        """
import operator
GAIN = operator.attrgetter("gain")
class Scale:
    def __init__(self):
        self.gain = np.random.rand()
    def __call__(self, x):
        return {"x": x * GAIN(self)}
transform = Scale()
""",
        "transform.gain",
    ),
    "an attribute that a library's function in an attribute reads": Case(
        """
import operator
class Scale:
    def __init__(self):
        self.gain = np.random.rand()
        self.read = operator.attrgetter("gain")
    def __call__(self, x):
        return {"x": x * self.read(self)}
transform = Scale()
""",
        "transform.gain",
    ),
    "an attribute that a pattern reads": Case(
        """
class Scale:
    def __init__(self):
        self.gain = np.random.rand()
    def __call__(self, x):
        match self:
            case Scale(gain=amount):
                return {"x": x * amount}
transform = Scale()
""",
        "transform.gain",
    ),
    "an attribute that a cached property reads": Case(
        """
class Scale:
    def __init__(self):
        self.seed_of_table = np.random.randint(10**6)
    @functools.cached_property
    def table(self):
        return np.random.default_rng(self.seed_of_table).random(8)
    def __call__(self, x):
        return {"x": x * self.table}
transform = Scale()
""",
        "transform.seed_of_table",
    ),
    "an attribute that a method with a cache reads": Case(
        """
class Scale:
    def __init__(self):
        self.gain = np.random.rand()
    @functools.lru_cache
    def table(self, size):
        return np.full(size, self.gain)
    def __call__(self, x):
        return {"x": x * self.table(8)}
transform = Scale()
""",
        "transform.gain",
    ),
    "an attribute that a method for each type reads": Case(
        """
class Scale:
    def __init__(self):
        self.gain = np.random.rand()
    @functools.singledispatchmethod
    def scaled(self, x):
        return x
    @scaled.register
    def _(self, x: np.ndarray):
        return x * self.gain
    def __call__(self, x):
        return {"x": self.scaled(x)}
transform = Scale()
""",
        "transform.gain",
    ),
    "an attribute that a decorator reads": Case(
        """
def scaled(function):
    @functools.wraps(function)
    def inner(self, x):
        return function(self, x * self.gain)
    return inner
class Scale:
    def __init__(self):
        self.gain = np.random.rand()
    @scaled
    def __call__(self, x):
        return {"x": x}
transform = Scale()
""",
        "transform.gain",
    ),
    "a variable that a cached property reads": Case(
        """
GAIN = np.random.rand()
class Scale:
    @functools.cached_property
    def table(self):
        return np.full(8, GAIN)
    def __call__(self, x):
        return {"x": x * self.table}
transform = Scale()
""",
        "users_module.GAIN",
    ),
    "an attribute that a decorated method reads": Case(
        """
def logged(function):
    def inner(*args, **batch):
        return function(*args, **batch)
    return inner
class Scale:
    def __init__(self):
        self.gain = np.random.rand()
    @logged
    def __call__(self, x):
        return {"x": self.scaled(x)}
    @logged
    def scaled(self, x):
        return x * self.gain
transform = Scale()
""",
        "transform.gain",
    ),
    "the order of a dict": Case(
        """
class Cases(Loader):
    def __init__(self):
        self.cases = dict.fromkeys(random.sample(range(20), 20), 1.0)
    def __next__(self):
        return {"x": np.random.rand(3), "case": list(self.cases)[np.random.randint(20)]}
loader = Cases()
""",
        "data_loader.cases.order",
    ),
    "a list in an object in a list": Case(
        """
class Part:
    def __init__(self):
        self.table = [[random.random() for _ in range(3)] for _ in range(3)]
class All:
    def __init__(self):
        self.parts = [Part(), Part()]
    def __call__(self, x):
        return {"x": x * self.parts[1].table[2][2]}
transform = All()
""",
        "transform.parts[0].table[0][0]",
    ),
    "a slot": Case(
        """
class Turn:
    __slots__ = ("angle",)
    def __init__(self):
        self.angle = float(torch.rand(()))
    def __call__(self, x):
        return {"x": x * self.angle}
transform = Turn()
""",
        "transform.angle",
    ),
    "a field of a data class": Case(
        """
@dataclasses.dataclass
class Turn:
    angle: float = dataclasses.field(default_factory=random.random, init=False)
    def __call__(self, x):
        return {"x": x * self.angle}
transform = Turn()
""",
        "transform.angle",
    ),
    "a closure": Case(
        """
def made(amount):
    def scale(x):
        return {"x": x * amount}
    return scale
transform = made(np.random.rand())
""",
        "transform.<amount>",
    ),
    "a module that was initialised": Case(
        """
class Net:
    def __init__(self):
        self.net = torch.nn.Linear(3, 3)
    def __call__(self, x):
        return {"x": x * float(self.net.weight.detach().mean())}
transform = Net()
""",
        "transform.net._parameters['weight']",
    ),
    "statistics that were fitted": Case(
        """
class Cases(Loader):
    def __init__(self):
        data = np.random.rand(50, 3)
        self.statistics = {"mean": data.mean(0), "std": data.std(0)}
    def __next__(self):
        return {"x": np.random.rand(3) * self.statistics["std"]}
loader = Cases()
""",
        "data_loader.statistics['mean']",
    ),
    "a text": Case(
        """
class Choice:
    def __init__(self):
        self.axis = random.choice([f"axis {number}" for number in range(1000)])
    def __call__(self, x):
        return {"x": x, "axis": self.axis}
transform = Choice()
""",
        "transform.axis",
    ),
    "a counter's counts": Case(
        """
class Cases(Loader):
    def __init__(self):
        self.counts = Counter(random.choices("ab", k=2001))
    def __next__(self):
        return {"x": np.random.rand(3) * self.counts["a"]}
loader = Cases()
""",
        "data_loader.counts['a']",
    ),
    "a rotation that SciPy holds as a matrix": Case(
        """
class Turn:
    def __init__(self):
        from scipy.spatial.transform import Rotation
        self.matrix = Rotation.random(random_state=np.random.randint(9**9)).as_matrix()
    def __call__(self, x):
        return {"x": x[:3] @ self.matrix}
transform = Turn()
""",
        "transform.matrix",
    ),
    "a named tuple": Case(
        """
Range = collections.namedtuple("Range", "low high")
class Scale:
    def __init__(self):
        self.range = Range(0.5, 1 + np.random.rand())
    def __call__(self, x):
        return {"x": x * self.range.high}
transform = Scale()
""",
        "transform.range[1]",
    ),
    "bytes": Case(
        """
class Cipher:
    def __init__(self):
        self.key = np.random.bytes(16)
    def __call__(self, x):
        return {"x": x * self.key[0]}
transform = Cipher()
""",
        "transform.key",
    ),
    "an array of numpy.empty that the constructor fills": Case(
        """
class Scale:
    def __init__(self):
        self.weights = np.empty(8)
        np.random.default_rng(np.random.randint(2**31)).random(out=self.weights)
    def __call__(self, x):
        return {"x": x * self.weights}
transform = Scale()
""",
        "transform.weights",
    ),
    "an array of numpy.empty that a method of the constructor fills": Case(
        """
class Scale:
    def __init__(self):
        self.weights = np.empty_like(np.zeros(8))
        self.draw()
    def draw(self):
        self.weights[:4] = np.random.rand(4)
        self.weights[4:] = 1
    def __call__(self, x):
        return {"x": x * self.weights}
transform = Scale()
""",
        "transform.weights",
    ),
    "a seed from the clock that batches are made with": Case(
        """
class Noise:
    def __init__(self):
        self.seed = time.time_ns()
    def __call__(self, x):
        return {"x": x + np.random.default_rng(self.seed).random(8)}
transform = Noise()
""",
        "transform.seed",
    ),
    "an array that a method of the program's overwrites": Case(
        """
class Normalize:
    def __init__(self):
        self.mean = np.zeros(8)
    def fit(self):
        self.mean[:] = np.random.rand(8)
    def __call__(self, x):
        return {"x": x - self.mean}
transform = Normalize()
transform.fit()
""",
        "transform.mean",
    ),
    "an array of numpy.empty that the program fills by a method": Case(
        """
class Scale:
    def __init__(self):
        self.weights = np.empty(8)
    def fit(self):
        self.weights[:4] = np.random.rand(4)
        self.weights[4:] = 1
    def __call__(self, x):
        return {"x": x * self.weights}
transform = Scale()
transform.fit()
""",
        "transform.weights",
    ),
    "an array of numpy.empty that the program fills from outside": Case(
        """
class Weights:
    def __init__(self):
        self.all = np.empty(8)
class Scale:
    def __init__(self):
        self.weights = Weights()
    def __call__(self, x):
        return {"x": x * self.weights.all}
transform = Scale()
transform.weights.all[...] = np.random.rand(8)
""",
        "transform.weights.all",
    ),
    "an array that numpy.empty is an operand of": Case(
        """
class Scale:
    def __init__(self):
        self.weights = 0 * np.empty(8) + np.random.rand(8)
        self.others = np.empty(8).clip(0, 0) + np.random.rand(8)
    def __call__(self, x):
        return {"x": x * self.weights * self.others}
transform = Scale()
""",
        "transform.weights",
    ),
    "an array in a tuple in a dict": Case(
        """
class Scale:
    def __init__(self):
        self.tables = {"t1": (np.random.rand(3), 2)}
    def __call__(self, x):
        return {"x": x * self.tables["t1"][0].sum()}
transform = Scale()
""",
        "transform.tables['t1'][0]",
    ),
    "an object behind a bound method": Case(
        """
class Scale:
    def __init__(self):
        self.factor = np.random.rand()
    def apply(self, x):
        return {"x": x * self.factor}
transform = Scale().apply
""",
        "transform.factor",
    ),
    "a complex number": Case(
        """
class Phase:
    def __init__(self):
        self.phase = complex(np.random.rand(), np.random.rand())
    def __call__(self, x):
        return {"x": x * abs(self.phase)}
transform = Phase()
""",
        "transform.phase",
    ),
    "a deque": Case(
        """
class Cases(Loader):
    def __init__(self):
        self.waiting = deque(random.sample(range(1000), 50))
    def __next__(self):
        return {"x": np.random.rand(3) + self.waiting[0]}
loader = Cases()
""",
        "data_loader.waiting",
    ),
    "a data frame": Case(
        """
import pandas
class Scale:
    def __init__(self):
        self.frame = pandas.DataFrame({"w": np.random.rand(5)})
    def __call__(self, x):
        return {"x": x * self.frame.w.sum()}
transform = Scale()
""",
        "transform.frame",
    ),
    "a slice": Case(
        """
class Crop:
    def __init__(self):
        self.where = slice(random.randrange(1, 1000), 2000)
    def __call__(self, x):
        return {"x": x * self.where.start}
transform = Crop()
""",
        "transform.where",
    ),
    "a range": Case(
        """
class Crop:
    def __init__(self):
        self.where = range(random.randrange(1, 1000), 2000)
    def __call__(self, x):
        return {"x": x * self.where[0]}
transform = Crop()
""",
        "transform.where",
    ),
    "an array of Python's": Case(
        """
class Scale:
    def __init__(self):
        self.w = array.array("d", [random.random()])
    def __call__(self, x):
        return {"x": x * self.w[0]}
transform = Scale()
""",
        "transform.w",
    ),
    "a decimal number": Case(
        """
class Scale:
    def __init__(self):
        self.w = decimal.Decimal(random.random())
    def __call__(self, x):
        return {"x": x * float(self.w)}
transform = Scale()
""",
        "transform.w",
    ),
    "a duration": Case(
        """
class Delay:
    def __init__(self):
        self.lag = datetime.timedelta(seconds=random.random())
    def __call__(self, x):
        return {"x": x * self.lag.total_seconds()}
transform = Delay()
""",
        "transform.lag",
    ),
    "the results that functools.cache keeps": Case(
        """
@functools.cache
def table(size):
    return np.random.rand(size)
table(8)
def transform(x):
    return {"x": x * table(8)}
""",
        "users_module.table(8)",
    ),
    "the results that a bounded cache keeps": Case(
        """
@functools.lru_cache(maxsize=4)
def table(size, kind):
    return tuple(np.random.rand(size).tolist())
table(8, "a")
def transform(x):
    return {"x": x * np.array(table(8, "a"))}
""",
        "users_module.table((8, 'a'))[0]",
    ),
}

#: Numbers in objects of libraries that show them in no public attribute.
IN_LIBRARIES = {
    "a curve of SciPy's": Case(
        """
from scipy.interpolate import make_interp_spline
class Tone:
    def __init__(self):
        self.curve = make_interp_spline(np.arange(6.0), np.random.rand(6))
    def __call__(self, x):
        return {"x": self.curve(x)}
transform = Tone()
""",
        "transform.curve._c",
    ),
    "a piecewise polynomial, in slots": Case(
        """
from scipy.interpolate import PchipInterpolator
class Tone:
    def __init__(self):
        self.curve = PchipInterpolator(np.arange(6.0), np.random.rand(6))
    def __call__(self, x):
        return {"x": self.curve(x)}
transform = Tone()
""",
        "transform.curve._c",
    ),
    "a field on a grid": Case(
        """
from scipy.interpolate import RegularGridInterpolator
class Field:
    def __init__(self):
        grid = np.sort(np.random.rand(4))
        self.field = RegularGridInterpolator((grid, grid), np.eye(4))
    def __call__(self, x):
        return {"x": x * self.field([[0.5, 0.5]])[0]}
transform = Field()
""",
        "transform.field._grid[0]",
    ),
    "a rotation": Case(
        """
from scipy.spatial.transform import Rotation
class Turn:
    def __init__(self):
        self.turns = {"first": Rotation.random(random_state=np.random.randint(9**9))}
    def __call__(self, x):
        return {"x": self.turns["first"].apply(x[:3])}
transform = Turn()
""",
        "transform.turns['first']._quat",
    ),
    "a tree of points": Case(
        """
from scipy.spatial import KDTree
class Distance:
    def __init__(self):
        self.tree = KDTree(np.random.rand(40, 3))
    def __call__(self, x):
        return {"x": x + self.tree.query(x[:3])[0]}
transform = Distance()
""",
        "transform.tree.<stored>[0]",
    ),
    "an image in a module": Case(
        """
import SimpleITK
FIELD = SimpleITK.GetImageFromArray(np.random.rand(2, 4))
def transform(x):
    return {"x": x * SimpleITK.GetArrayFromImage(FIELD)[0, 0]}
""",
        "users_module.FIELD.<stored>[0]",
    ),
    "a turn of SimpleITK's": Case(
        """
import SimpleITK
class Turn:
    def __init__(self):
        self.turn = SimpleITK.Euler3DTransform()
        self.turn.SetRotation(0.0, 0.0, np.random.rand())
    def __call__(self, x):
        return {"x": x + self.turn.TransformPoint((1.0, 0.0, 0.0))[0]}
transform = Turn()
""",
        "transform.turn.<stored>[0]",
    ),
    "a chain of turns and a field": Case(
        """
import SimpleITK
class Turn:
    def __init__(self):
        turn = SimpleITK.Euler3DTransform()
        turn.SetRotation(0.0, 0.0, np.random.rand())
        self.turn = SimpleITK.CompositeTransform([turn])
    def __call__(self, x):
        return {"x": x + self.turn.TransformPoint((1.0, 0.0, 0.0))[0]}
transform = Turn()
""",
        "transform.turn.<stored>[0]",
    ),
    "the items that a function takes": Case(
        """
import operator
class Subset:
    def __init__(self):
        self.take = operator.itemgetter(*random.sample(range(8), 3))
    def __call__(self, x):
        return {"x": np.array(self.take(x))}
transform = Subset()
""",
        "transform.take",
    ),
    "the order of steps in a dict": Case(
        """
class Steps:
    def __init__(self):
        names = [f"step {number}" for number in range(12)]
        random.shuffle(names)
        self.steps = dict.fromkeys(names, 1.0)
    def __call__(self, x):
        return {"x": x, "first": next(iter(self.steps))}
transform = Steps()
""",
        "transform.steps.order",
    ),
    "an image with its header": Case(
        """
import nibabel
class Template:
    def __init__(self):
        self.image = nibabel.Nifti1Image(np.random.rand(2, 2, 2), np.eye(4))
    def __call__(self, x):
        return {"x": x * self.image.get_fdata()[0, 0, 0]}
transform = Template()
""",
        "transform.image._dataobj",
    ),
    "a picture": Case(
        """
from PIL import Image
class Texture:
    def __init__(self):
        self.texture = Image.fromarray(np.random.randint(0, 255, (6, 6), dtype=np.uint8))
    def __call__(self, x):
        return {"x": x * np.asarray(self.texture)[0, 0]}
transform = Texture()
""",
        "transform.texture.<stored>[0]",
    ),
    "a table for C": Case(
        """
import ctypes
class Table:
    def __init__(self):
        self.table = (ctypes.c_double * 4)(*np.random.rand(4))
    def __call__(self, x):
        return {"x": x * self.table[2]}
transform = Table()
""",
        "transform.table.<stored>[0]",
    ),
    "a structure of C": Case(
        """
import ctypes
class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_double), ("y", ctypes.c_float)]
class Shift:
    def __init__(self):
        self.by = Point(*np.random.rand(2))
    def __call__(self, x):
        return {"x": x + self.by.x}
transform = Shift()
""",
        "transform.by.<stored>[0]",
    ),
    "a sequence of seeds that batches use": Case(
        """
class Noise:
    def __init__(self):
        self.seeds = np.random.SeedSequence()
    def __call__(self, x):
        return {"x": x + np.random.default_rng(self.seeds).random(8)}
transform = Noise()
""",
        "transform.seeds.<stored>[0]",
    ),
}

#: Names and order of files, which are data wherever the files lie.
FILES = {
    "an order of files": Case(
        """
class Cases(Loader):
    def __init__(self):
        self.files = [f"/data/images/{number}.nii" for number in range(9)]
        random.shuffle(self.files)
    def __next__(self):
        return {"x": np.random.rand(3), "name": self.files[0]}
loader = Cases()
""",
        "data_loader.files",
    ),
    "a file among others, in a list of dicts": Case(
        """
class Cases(Loader):
    def __init__(self):
        self.items = [{"image": f"data/{number}/t1.nii", "age": number} for number in range(4)]
    def __next__(self):
        return {"x": np.random.rand(3), "name": self.items[2]["image"]}
loader = Cases()
""",
        "data_loader.items",
        "loader.items[2]['image'] = 'data/40/t1.nii'",
    ),
}

#: Values of the module's variables, classes and functions. The second program changes most of them.
SET = {
    # A cache that begins as None looks the same, and is named as well.
    "an attribute that is None until it is fitted": Case(
        """
class Normalize:
    def __init__(self):
        self.mean = None
    def fit(self):
        self.mean = 2.0
    def __call__(self, x):
        return {"x": x - (self.mean or 0.0)}
transform = Normalize()
""",
        "transform.mean",
        "transform.fit()",
    ),
    "a default of a function that is called": Case(
        """
def scaled(x, by=1.5, *, shift=0.0):
    return x * by + shift
def transform(x):
    return {"x": scaled(x)}
""",
        "users_module.scaled.__kwdefaults__['shift']",
        "scaled.__kwdefaults__['shift'] = 0.5",
    ),
    "what a function that is called has in its closure": Case(
        """
def made(gain):
    def scaled(x):
        return x * gain
    return scaled
scaled = made(np.random.rand())
def transform(x):
    return {"x": scaled(x)}
""",
        "users_module.made.<locals>.scaled.<gain>",
    ),
    "a variable of the module": Case(
        """
STRENGTH = 1.5
def transform(x):
    return {"x": x * STRENGTH}
""",
        "users_module.STRENGTH",
        "STRENGTH = 2.5",
    ),
    "an item of a dict": Case(
        """
CONFIG = {"noise": {"p": 0.25}, "epoch": 0}
def transform(x):
    return {"x": x + CONFIG["noise"]["p"]}
""",
        "users_module.CONFIG['noise']['p']",
        "CONFIG['noise']['p'] = 0.5; CONFIG['epoch'] = 7",
    ),
    "an attribute of a class": Case(
        """
class Scale:
    factor = 2
    def __call__(self, x):
        return {"x": x * self.factor}
transform = Scale()
""",
        "users_module.Scale.factor",
        "Scale.factor = 3",
    ),
    "an attribute of a base class": Case(
        """
class Base:
    levels = [1, 2]
class Scale(Base):
    def __call__(self, x):
        return {"x": x * self.levels[-1]}
transform = Scale()
""",
        "users_module.Base.levels[1]",
        "Base.levels[1] = 5",
    ),
    "parsed arguments": Case(
        """
ARGUMENTS = argparse.Namespace(p=0.5, epochs=100)
def transform(x):
    return {"x": x * ARGUMENTS.p}
""",
        "users_module.ARGUMENTS.p",
        "ARGUMENTS.p = 0.75; ARGUMENTS.epochs = 200",
    ),
    "an object that the code calls": Case(
        """
class Blur:
    def __init__(self, sigma):
        self.sigma = sigma
    def __call__(self, x):
        return x * self.sigma
BLUR = Blur(1.0)
def transform(x):
    return {"x": BLUR(x)}
""",
        "users_module.BLUR.sigma",
        "BLUR.sigma = 4.0",
    ),
    "a partial": Case(
        """
def scaled(x, by):
    return x * by
NOISE = functools.partial(scaled, by=2)
def transform(x):
    return {"x": NOISE(x)}
""",
        "users_module.NOISE.keywords['by']",
        "NOISE = functools.partial(scaled, by=3)",
    ),
    "a variable of a function that is called": Case(
        """
LOW, HIGH = 0.5, 1.5
def amount():
    return LOW + HIGH
class Scale:
    def __call__(self, x):
        return {"x": self.scaled(x)}
    @staticmethod
    def scaled(x):
        return x * amount()
transform = Scale()
""",
        "users_module.HIGH",
        "HIGH = 3.5",
    ),
    "what a constructor sets in its class": Case(
        """
class Scale:
    def __init__(self):
        Scale.shift = np.random.rand()
    def __call__(self, x):
        return {"x": x + self.shift}
transform = Scale()
""",
        "users_module.Scale.shift",
    ),
    "a default": Case(
        """
def transform(x, amount=np.random.rand()):
    return {"x": x * amount}
""",
        "transform.__defaults__[0]",
    ),
    "a table that an array holds": Case(
        """
TABLE = np.arange(5.0)
def transform(x):
    return {"x": x + TABLE[2]}
""",
        "users_module.TABLE",
        "TABLE[2] = 9.0",
    ),
    "a set by a function of the module": Case(
        """
STRENGTH = 1
def set_strength(value):
    global STRENGTH
    STRENGTH = value
def transform(x):
    return {"x": x * STRENGTH}
""",
        "users_module.STRENGTH",
        "set_strength(4)",
    ),
    "a set by a method of the class": Case(
        """
class Scale:
    strength = 1
    @classmethod
    def set_strength(cls, value):
        cls.strength = value
    def __call__(self, x):
        return {"x": x * self.strength}
transform = Scale()
""",
        "users_module.Scale.strength",
        "Scale.set_strength(4)",
    ),
    "an item of an array in a class": Case(
        """
class Scale:
    TABLE = np.ones(4)
    def __call__(self, x):
        return {"x": x * self.TABLE[1]}
transform = Scale()
""",
        "users_module.Scale.TABLE",
        "Scale.TABLE[1] = 2",
    ),
    "an attribute of a function": Case(
        """
def strength(x):
    return x * strength.factor
strength.factor = 1
def transform(x):
    return {"x": strength(x)}
""",
        "users_module.strength.factor",
        "strength.factor = 2",
    ),
    "a simple namespace": Case(
        """
SETTINGS = types.SimpleNamespace(noise=types.SimpleNamespace(sigma=0.1))
def transform(x):
    return {"x": x * SETTINGS.noise.sigma}
""",
        "users_module.SETTINGS.noise.sigma",
        "SETTINGS.noise.sigma = 0.2",
    ),
    "a flag that a comprehension reads": Case(
        """
FLIPS = True
def transform(x):
    return {"x": np.array([-value if FLIPS else value for value in x])}
""",
        "users_module.FLIPS",
        "FLIPS = False",
    ),
    "a variable that a property reads": Case(
        """
GAIN = 1.0
class Scale:
    @property
    def gain(self):
        return GAIN
    def __call__(self, x):
        return {"x": x * self.gain}
transform = Scale()
""",
        "users_module.GAIN",
        "GAIN = 3.0",
    ),
    "a variable of a decorated function": Case(
        """
LIMIT = 0.5
def logged(function):
    @functools.wraps(function)
    def call(*arguments, **options):
        return function(*arguments, **options)
    return call
@logged
def transform(x):
    return {"x": np.minimum(x, LIMIT)}
""",
        "users_module.LIMIT",
        "LIMIT = 0.7",
    ),
    "a field of a nested data class": Case(
        """
@dataclasses.dataclass(frozen=True)
class Noise:
    sigma: float = 1.0
@dataclasses.dataclass
class Config:
    noise: Noise = dataclasses.field(default_factory=Noise)
CONFIG = Config()
def transform(x):
    return {"x": x * CONFIG.noise.sigma}
""",
        "users_module.CONFIG.noise.sigma",
        "CONFIG.noise = Noise(2.0)",
    ),
    "a member of an enumeration": Case(
        """
class Mode(enum.Enum):
    WEAK = 1
    STRONG = 2
MODE = Mode.WEAK
def transform(x):
    return {"x": x * MODE.value}
""",
        "users_module.MODE._value_",
        "MODE = Mode.STRONG",
    ),
    "a dtype": Case(
        """
KIND = torch.float32
def transform(x):
    return {"x": torch.tensor(x, dtype=KIND)}
""",
        "users_module.KIND",
        "KIND = torch.float64",
    ),
    "which function a variable names": Case(
        """
def stronger(x):
    return x * 2
def weaker(x):
    return x / 2
CHANGE = stronger
def transform(x):
    return {"x": CHANGE(x)}
""",
        "users_module.CHANGE.__qualname__",
        "CHANGE = weaker",
    ),
    "which function an attribute names": Case(
        """
class Apply:
    def __init__(self):
        self.function = np.sin
    def __call__(self, x):
        return {"x": self.function(x)}
transform = Apply()
""",
        "transform.function",
        "transform.function = np.cos",
    ),
    "an item of a dict whose items are its attributes": Case(
        """
class Config(dict):
    __getattr__ = dict.__getitem__
CONFIG = Config(noise=Config(p=0.5))
def transform(x):
    return {"x": x * CONFIG.noise.p}
""",
        "users_module.CONFIG['noise']['p']",
        "CONFIG['noise']['p'] = 0.75",
    ),
    "what the module's __getattr__ reads": Case(
        """
VALUES = {"STRENGTH": 1.0}
def __getattr__(name):
    if name not in VALUES:
        raise AttributeError(name)
    return VALUES[name]
def transform(x):
    return {"x": x * sys.modules[__name__].STRENGTH}
""",
        "users_module.VALUES['STRENGTH']",
        "VALUES['STRENGTH'] = 2.0",
    ),
    "a variable of the thread": Case(
        """
LOCAL = threading.local()
LOCAL.gain = 1.0
def transform(x):
    return {"x": x * LOCAL.gain}
""",
        "users_module.LOCAL.gain",
        "LOCAL.gain = 2.0",
    ),
    "an object behind a weak reference": Case(
        """
class Gain:
    def __init__(self):
        self.value = 1.0
HELD = Gain()
REFERENCE = weakref.ref(HELD)
def transform(x):
    return {"x": x * REFERENCE().value}
""",
        "users_module.REFERENCE().value",
        "HELD.value = 2.0",
    ),
    "a chain of dicts": Case(
        """
CONFIG = ChainMap({}, {"p": 0.5})
def transform(x):
    return {"x": x * CONFIG["p"]}
""",
        "users_module.CONFIG['p']",
        "CONFIG['p'] = 0.75",
    ),
    "a context variable": Case(
        """
GAIN = contextvars.ContextVar("gain", default=1.0)
GAIN.set(1.0)
def transform(x):
    return {"x": x * GAIN.get()}
""",
        "users_module.GAIN.get()",
        "GAIN.set(2.0)",
    ),
    "a fraction": Case(
        """
GAIN = fractions.Fraction(1, 3)
def transform(x):
    return {"x": x * float(GAIN)}
""",
        "users_module.GAIN",
        "GAIN = fractions.Fraction(2, 3)",
    ),
    "what a descriptor reads": Case(
        """
VALUES = {"gain": 1.0}
class Gain:
    def __get__(self, owner, kind=None):
        return VALUES["gain"]
class Scale:
    gain = Gain()
    def __call__(self, x):
        return {"x": x * self.gain}
transform = Scale()
""",
        "users_module.VALUES['gain']",
        "VALUES['gain'] = 2.0",
    ),
    "which class a variable stands for": Case(
        """
class Weak:
    gain = 1.0
    class noise:
        sigma = 0.1
class Strong:
    gain = 2.0
    class noise:
        sigma = 0.1
ACTIVE = Weak
def transform(x):
    return {"x": x * ACTIVE.gain}
""",
        "users_module.ACTIVE.__qualname__",
        "ACTIVE = Strong",
    ),
    "which class an item stands for, in an object": Case(
        """
class Weak:
    gain = 1.0
class Strong:
    gain = 2.0
CONFIG = types.SimpleNamespace(presets={"train": Weak})
def transform(x):
    return {"x": x * CONFIG.presets["train"].gain}
""",
        "users_module.CONFIG.presets['train'].__qualname__",
        "CONFIG.presets['train'] = Strong",
    ),
    "which class a class attribute stands for": Case(
        """
class Weak:
    gain = 1.0
class Strong:
    gain = 2.0
class Scale:
    preset = Weak
    def __call__(self, x):
        return {"x": x * self.preset.gain}
transform = Scale()
""",
        "users_module.Scale.preset.__qualname__",
        "Scale.preset = Strong",
    ),
    "which module a variable stands for": Case(
        """
weak = types.ModuleType(f"{__name__}_weak")
weak.GAIN = 1.0
strong = types.ModuleType(f"{__name__}_strong")
strong.GAIN = 2.0
ACTIVE = weak
def transform(x):
    return {"x": x * ACTIVE.GAIN}
""",
        "users_module.ACTIVE.__name__",
        "ACTIVE = strong",
    ),
    "a variable of a module that an object has": Case(
        """
settings = types.ModuleType(f"{__name__}_settings")
settings.GAIN = 1.0
settings.EPOCHS = 100
class Scale:
    def __init__(self, settings):
        self.settings = settings
    def __call__(self, x):
        return {"x": x * self.settings.GAIN}
transform = Scale(settings)
""",
        "users_module_settings.GAIN",
        "settings.GAIN = 2.0; settings.EPOCHS = 7",
    ),
    "a file of settings": Case(
        """
import configparser
CONFIG = configparser.ConfigParser()
CONFIG.read_dict({"augmentation": {"gain": "1.0"}, "training": {"epochs": "100"}})
def transform(x):
    return {"x": x * CONFIG["augmentation"].getfloat("gain")}
""",
        "users_module.CONFIG['augmentation']['gain']",
        "CONFIG.set('augmentation', 'gain', '2.0'); CONFIG.set('training', 'epochs', '7')",
    ),
    "a part of a file of settings, in an object": Case(
        """
import configparser
CONFIG = configparser.ConfigParser()
CONFIG.read_dict({"augmentation": {"gain": "1.0"}})
class Scale:
    def __init__(self, section):
        self.section = section
    def __call__(self, x):
        return {"x": x * self.section.getfloat("gain")}
transform = Scale(CONFIG["augmentation"])
""",
        "transform.section['gain']",
        "CONFIG.set('augmentation', 'gain', '2.0')",
    ),
    "an object that a cached function returns": Case(
        """
@dataclasses.dataclass
class Settings:
    gain: float = 1.0
@functools.lru_cache
def settings():
    return Settings()
settings()
def transform(x):
    return {"x": x * settings().gain}
""",
        "users_module.settings().gain",
        "settings().gain = 2.0",
    ),
    "the one object of a class with a cache": Case(
        """
@functools.cache
class Settings:
    def __init__(self):
        self.gain = 1.0
Settings()
def transform(x):
    return {"x": x * Settings().gain}
""",
        "users_module.Settings().gain",
        "Settings().gain = 2.0",
    ),
    "an object that a function makes on its first call": Case(
        """
class Settings:
    def __init__(self):
        self.gain = 1.0
        self.reads = 0
    def read(self):
        self.reads += 1
        return self.gain
SETTINGS = None
def settings():
    global SETTINGS
    if SETTINGS is None:
        SETTINGS = Settings()
    return SETTINGS
settings()
def transform(x):
    return {"x": x * settings().read()}
""",
        "users_module.SETTINGS.gain",
        "settings().gain = 2.0; settings().reads = 7",
    ),
    "a namespace that a function makes on its first call": Case(
        """
SETTINGS = None
def settings():
    global SETTINGS
    if SETTINGS is None:
        SETTINGS = types.SimpleNamespace(gain=1.0, cache={})
    return SETTINGS
settings()
def transform(x):
    return {"x": x * settings().gain}
""",
        "users_module.SETTINGS.gain",
        "settings().gain = 2.0; settings().cache[1] = 1",
    ),
    "the one object of a class with a metaclass": Case(
        """
class Single(type):
    objects = {}
    def __call__(cls):
        if cls not in cls.objects:
            cls.objects[cls] = super().__call__()
        return cls.objects[cls]
class Settings(metaclass=Single):
    def __init__(self):
        self.gain = 1.0
Settings()
def transform(x):
    return {"x": x * Settings().gain}
""",
        "users_module.Settings().gain",
        "Settings().gain = 2.0",
    ),
    "the one object of a class with a decorator": Case(
        """
def single(kind):
    objects = {}
    def made():
        if kind not in objects:
            objects[kind] = kind()
        return objects[kind]
    return made
@single
class Settings:
    def __init__(self):
        self.gain = 1.0
Settings()
def transform(x):
    return {"x": x * Settings().gain}
""",
        "users_module.Settings().gain",
        "Settings().gain = 2.0",
    ),
    "a dict that a cached function returns": Case(
        """
@functools.cache
def settings(name="base"):
    return {"augmentation": {"gain": 1.0}}
settings()
def transform(x):
    return {"x": x * settings()["augmentation"]["gain"]}
""",
        "users_module.settings()['augmentation']['gain']",
        "settings()['augmentation']['gain'] = 2.0",
    ),
    "an attribute of a metaclass": Case(
        """
class Settings(type):
    gain = 1.0
class Current(metaclass=Settings):
    pass
def transform(x):
    return {"x": x * Current.gain}
""",
        "users_module.Settings.gain",
        "Settings.gain = 2.0",
    ),
    "a variable that globals() gives": Case(
        """
GAIN = 1.0
def transform(x):
    return {"x": x * globals()["GAIN"]}
""",
        "users_module.GAIN",
        "GAIN = 2.0",
    ),
    "a variable of a module that getattr gives": Case(
        """
GAIN = 1.0
this = sys.modules[__name__]
def transform(x):
    return {"x": x * getattr(this, "GAIN")}
""",
        "users_module.GAIN",
        "GAIN = 2.0",
    ),
}


CASES = {**DRAWN, **IN_LIBRARIES, **FILES, **SET}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_value_that_differs_from_the_saved_runs_is_named(case: Case, name: str) -> None:
    (text,) = warnings_at_load(name, case.source, case.change)
    assert text.startswith("values that no argument declares differ")
    assert f"{case.name}: here ".replace("users_module", name) in text

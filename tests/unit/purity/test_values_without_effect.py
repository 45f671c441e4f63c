"""No warning mentions values that differ or change if no batch depends on them."""

from __future__ import annotations

import json
import os
import types
from contextlib import ExitStack
from typing import NamedTuple

import click
import pytest

from detaug.objects.of_this_process import names_the_job
from detaug.objects.variables import PipelineCode
from detaug.pipeline.undeclared_values import variables_in
from tests.processes.purity.ways import listening
from tests.unit.purity.users_modules import Program


class Correct(NamedTuple):
    """A pipeline with values that differ between two programs, or change, without an effect.

    Attributes:
        source: code of the user's module.
        use: code that the program runs in the module between epochs.
    """

    source: str
    use: str = ""


CORRECT = {
    "a cache in a module": Correct(
        """
CACHE = {}
def load(case):
    if case not in CACHE:
        CACHE[case] = np.full(3, case)
    return CACHE[case]
def transform(x):
    return {"x": x[:3] * load(int(np.random.randint(40)))}
""",
        "load(7); load(50); load(int(np.random.rand() * 1e6))",
    ),
    "a cache with a limit": Correct(
        """
CACHE = OrderedDict()
def load(case):
    CACHE[case] = CACHE.pop(case, None) or float(case)
    CACHE.move_to_end(case)
    while len(CACHE) > 5:
        CACHE.popitem(last=False)
    return CACHE[case]
def transform(x):
    return {"x": x * load(int(np.random.randint(40)))}
""",
        "load(7); load(50); load(3)",
    ),
    "functools.lru_cache": Correct(
        """
@functools.lru_cache(maxsize=None)
def load(case):
    return float(case)
def transform(x):
    return {"x": x * load(int(np.random.randint(40)))}
""",
        "load(7); load(50)",
    ),
    "a cache in a class": Correct(
        """
class Scale:
    cache = {}
    hits = 0
    def __call__(self, x):
        return {"x": x * self.load(int(np.random.randint(40)))}
    def load(self, case):
        Scale.hits += 1
        if case not in self.cache:
            self.cache[case] = float(case)
        return self.cache[case]
transform = Scale()
""",
        "transform.load(7); transform.load(50)",
    ),
    "a cache in a class, by a class method": Correct(
        """
class Tables:
    tables = {}
    @classmethod
    def get(cls, size):
        cls.used = size
        return cls.tables.setdefault(size, np.arange(size))
def transform(x):
    return {"x": x + Tables.get(8)}
""",
        "Tables.get(9)",
    ),
    "an atlas that is read on first use": Correct(
        """
ATLAS = None
def atlas():
    global ATLAS
    if ATLAS is None:
        ATLAS = np.arange(8.0)
    return ATLAS
def transform(x):
    return {"x": x + atlas()}
""",
        "atlas()",
    ),
    "an atlas in a dict": Correct(
        """
STATE = dict(atlas=None, reads=0)
def atlas():
    STATE["reads"] += 1
    if STATE["atlas"] is None:
        STATE["atlas"] = np.arange(8.0)
    return STATE["atlas"]
def transform(x):
    return {"x": x + atlas()}
""",
        "atlas()",
    ),
    "counters and timers": Correct(
        """
CALLS = 0
SECONDS = defaultdict(float)
def timed(function):
    @functools.wraps(function)
    def call(*arguments, **options):
        global CALLS
        CALLS += 1
        began = time.perf_counter()
        result = function(*arguments, **options)
        SECONDS[function.__name__] += time.perf_counter() - began
        return result
    return call
@timed
def transform(x):
    return {"x": x}
""",
        "transform(3)",
    ),
    "a set of warnings that were given": Correct(
        """
SEEN = set()
LOG = logging.getLogger("users")
def warn(text):
    if text not in SEEN:
        SEEN.add(text)
        LOG.info(text)
def transform(x):
    warn("resampled")
    return {"x": x}
""",
        "warn('another'); LOG.setLevel(logging.ERROR if LOG.level != logging.ERROR else 0)",
    ),
    "a lock, a pattern and a time": Correct(
        """
LOCK = threading.Lock()
PATTERN = re.compile("a+")
STARTED = time.time()
RUN = time.strftime("run-%Y%m%d-%H%M%S")
class Named:
    def __init__(self):
        self.lock = threading.Lock
        self.started = time.time_ns()
        self.name = time.strftime("%Y-%m-%d %H:%M:%S")
        self.run = uuid.uuid4().hex
        self.process = os.getpid()
        self.thread = threading.get_ident()
        self.address = id(self)
    def __call__(self, x):
        with LOCK:
            PATTERN.match(str(STARTED) + RUN)
            return {"x": x}
transform = Named()
""",
        "STARTED = time.time(); RUN = str(uuid.uuid4())",
    ),
    "generators": Correct(
        """
RNG = np.random.default_rng()
class Draws:
    def __init__(self):
        self.rng = np.random.default_rng()
        self.state = np.random.RandomState()
        self.torch = torch.Generator()
        self.torch.seed()
        self.python = random.Random()
    def __call__(self, x):
        return {"x": x * self.rng.random() + RNG.random() + self.python.random()}
transform = Draws()
""",
        "RNG.random(); transform.rng.random()",
    ),
    "loop counters of the script": Correct(
        """
epoch, step, losses, best = 0, 0, [], 1e9
def transform(x):
    return {"x": x}
""",
        "epoch += 1; step += 10; losses.append(np.random.rand()); best = losses[-1]",
    ),
    "arguments that it does not read": Correct(
        """
ARGUMENTS = argparse.Namespace(p=0.5, epochs=100, lr=1e-3)
CONFIG = {"lr": 1e-3, "augmentation": {"p": 0.5}}
def transform(x):
    return {"x": x * ARGUMENTS.p * CONFIG["augmentation"]["p"]}
""",
        "ARGUMENTS.lr *= 0.9; CONFIG['lr'] *= 0.9; ARGUMENTS.epochs += 1",
    ),
    "a set of names": Correct(
        """
class Names:
    def __init__(self):
        names = [f"case {number}" for number in range(30)]
        random.shuffle(names)
        self.names = set(names)
        self.few = frozenset(names) & {"case 1", "case 2", "case 3"}
        self.index = dict.fromkeys(names, 1)
    def __call__(self, x):
        return {"x": x, "names": sorted(self.names)}
transform = Names()
""",
    ),
    "folders of this machine": Correct(
        """
class Cases(Loader):
    def __init__(self):
        root = f"/scratch/{random.randrange(10**9)}"
        self.root = root
        self.files = [f"{root}/images/{number}.nii.gz" for number in range(20)]
        self.many = [f"{root}/images/{number}.nii.gz" for number in range(500)]
        self.by_case = {number: {"image": f"{root}/images/{number}.nii"} for number in range(9)}
loader = Cases()
""",
    ),
    "files that this job has in a folder of its own": Correct(
        """
class Cases(Loader):
    def __init__(self):
        root = f"/scratch/job{random.randrange(10**9)}"
        self.few = [f"{root}/{number}.nii.gz" for number in range(9)]
        self.many = tuple(f"{root}/{number}.nii.gz" for number in range(500))
        long = f"{root}/{'folder/' * 15}"
        self.items = [{"image": f"{long}{n}/t1.nii", "label": f"{root}/{n}.nii"} for n in range(30)]
loader = Cases()
""",
    ),
    "a seed from the clock of a generator that is seeded for every batch": Correct(
        """
class Noise:
    def __init__(self):
        self.seed = time.time_ns()
        self.rng = np.random.default_rng(self.seed)
    def __call__(self, x):
        return {"x": x + self.rng.random(8)}
transform = Noise()
""",
    ),
    "names of the machine and of the job": Correct(
        """
import socket
os.environ["SLURM_JOB_ID"] = str(random.randrange(10**6, 10**7))
class Named:
    def __init__(self):
        self.job = os.environ["SLURM_JOB_ID"]
        self.number = int(self.job)
        self.host = socket.gethostname()
    def __call__(self, x):
        return {"x": x}
transform = Named()
""",
    ),
    "counters and results in closures of functions that are called": Correct(
        """
def counted(function):
    calls, last = 0, None
    def call(x):
        nonlocal calls, last
        calls += 1
        last = function(x)
        return last
    def reset():
        nonlocal last
        last = 1.5
    return call, reset
scaled, reset = counted(lambda x: x * 2)
def transform(x):
    return {"x": scaled(x)}
""",
        "scaled(3.0); reset()",
    ),
    "objects of libraries with what they have computed": Correct(
        """
from scipy.interpolate import make_interp_spline
from scipy.spatial import cKDTree
class Curve:
    def __init__(self):
        self.curve = make_interp_spline(np.arange(6.0), np.arange(6.0) ** 2)
        self.tree = cKDTree(np.eye(3))
        self.device = torch.device("cpu")
        self.noise = torch.distributions.Normal(0.0, 1.0)
    def __call__(self, x):
        return {"x": self.curve(x) + self.tree.query(x[:3])[0]}
transform = Curve()
""",
        "transform(np.arange(8.0))",
    ),
    "a large data set": Correct(
        """
class Cases(Loader):
    def __init__(self):
        self.data = np.random.rand(1000, 1000)
        self.more = [np.random.rand(900, 900) for _ in range(3)]
    def __next__(self):
        return {"x": np.random.rand(3)}
loader = Cases()
""",
    ),
    "a memory map": Correct(
        """
import tempfile
class Cases(Loader):
    def __init__(self):
        file = tempfile.NamedTemporaryFile()
        file.write(os.urandom(8000))
        file.flush()
        self.data = np.memmap(file.name, dtype=np.uint8, mode="r")
        self.rows = self.data.reshape(80, 100)[3:]
loader = Cases()
""",
    ),
    "a queue of results and a thread pool": Correct(
        """
from concurrent.futures import ThreadPoolExecutor
import queue
QUEUE = queue.Queue()
HISTORY = deque(maxlen=5)
def transform(x):
    QUEUE.put(float(x[0]))
    HISTORY.append(float(x[0]))
    return {"x": x}
""",
        "QUEUE.put(3); HISTORY.append(7)",
    ),
    "a module that is imported late": Correct(
        """
def transform(x):
    import scipy.ndimage
    from scipy import ndimage
    return {"x": ndimage.gaussian_filter(x, 1)}
""",
    ),
    "a setting that follows from the epoch": Correct(
        """
class Ramp:
    strength = 0
    def set_epoch(self, epoch):
        self.strength = epoch
        LEVEL["now"] = epoch
    def __call__(self, x):
        return {"x": x * self.strength}
LEVEL = {"now": 0}
transform = Ramp()
""",
        "LEVEL['now'] += 1",
    ),
    "running statistics that nothing reads": Correct(
        """
class Statistics:
    def __init__(self):
        self.count = 0
        self.values = []
    def add(self, x):
        self.count += 1
        self.values.append(x.mean())
STATISTICS = Statistics()
def transform(x):
    STATISTICS.add(x)
    return {"x": x}
""",
    ),
    "classes and functions in a registry": Correct(
        """
REGISTRY = {}
def register(function):
    REGISTRY[function.__name__] = function
    return function
@register
def flip(x):
    return x[::-1]
@register
def same(x):
    return x
class Choice:
    def __init__(self):
        self.functions = [REGISTRY["flip"], np.sort, torch.relu]
        self.kinds = (dict, np.ndarray)
    def __call__(self, x):
        return {"x": REGISTRY["flip"](x)}
transform = Choice()
""",
        "register(lambda x: x)",
    ),
    "a cached property": Correct(
        """
class Scale:
    @functools.cached_property
    def table(self):
        return np.arange(8.0)
    def __call__(self, x):
        return {"x": x + self.table}
transform = Scale()
""",
        "transform.table",
    ),
    "a cache of weak references": Correct(
        """
import weakref
class Volume:
    def __init__(self, case):
        self.case = case
CACHE = weakref.WeakValueDictionary()
def load(case):
    return CACHE.setdefault(case, Volume(case))
def transform(x):
    return {"x": x * load(int(np.random.randint(40))).case}
""",
        "kept = load(7)",
    ),
    "a cache that a closure keeps": Correct(
        """
def made():
    cache = {}
    def load(x):
        case = int(np.random.randint(40))
        if case not in cache:
            cache[case] = float(case)
        return {"x": x * cache[case]}
    return load
transform = made()
""",
        "transform(1)",
    ),
    "a cache that the program fills too": Correct(
        """
class Load:
    def __init__(self):
        self.cases = {}
    def __call__(self, x):
        case = int(np.random.randint(40))
        if case not in self.cases:
            self.cases[case] = float(case)
        return {"x": x * self.cases[case]}
transform = Load()
""",
        "transform(1)",
    ),
    "a memo on the function itself": Correct(
        """
def load(case):
    if case not in load.memo:
        load.memo[case] = float(case)
    return load.memo[case]
load.memo = {}
def transform(x):
    return {"x": x * load(int(np.random.randint(40)))}
""",
        "load(50)",
    ),
    "a default that is a cache": Correct(
        """
def load(case, cache={}):
    return cache.setdefault(case, float(case))
def transform(x):
    return {"x": x * load(int(np.random.randint(40)))}
""",
        "load(50)",
    ),
    "a singleton": Correct(
        """
class Atlas:
    _instance = None
    @classmethod
    def instance(cls):
        if cls._instance is None:
            cls._instance = cls()
            cls._instance.values = np.arange(8.0)
        return cls._instance
def transform(x):
    return {"x": x + Atlas.instance().values}
""",
        "Atlas.instance()",
    ),
    "a buffer that is written before it is read": Correct(
        """
BUFFER = np.zeros(8)
def transform(x):
    np.multiply(x, 2, out=BUFFER)
    return {"x": BUFFER.copy()}
""",
        "BUFFER += 1",
    ),
    "variables of a thread": Correct(
        """
LOCAL = threading.local()
def buffer():
    if not hasattr(LOCAL, "buffer"):
        LOCAL.buffer = np.empty(8)
    return LOCAL.buffer
def transform(x):
    buffer()[:] = x
    return {"x": buffer().copy()}
""",
        "buffer()",
    ),
    "a handler and a file of a log": Correct(
        """
LOG = logging.getLogger("users.file")
HANDLERS = [logging.NullHandler()]
def transform(x):
    LOG.debug("a batch")
    return {"x": x}
""",
        "LOG.addHandler(HANDLERS[0]); LOG.setLevel(30)",
    ),
    "a network that is trained": Correct(
        """
NETWORK = torch.nn.Linear(2, 2)
OPTIMIZER = torch.optim.SGD(NETWORK.parameters(), 0.1)
def train():
    OPTIMIZER.zero_grad()
    NETWORK(torch.ones(2)).sum().backward()
    OPTIMIZER.step()
def transform(x):
    return {"x": x}
""",
        "train()",
    ),
    "constants that code does not change": Correct(
        """
SHAPE, AXES, NAMES, KIND = (8,), [0], {"x": "image"}, np.float32
def transform(x):
    return {"x": x.reshape(SHAPE).mean(AXES[0]).astype(KIND), "name": NAMES["x"]}
""",
    ),
    "an enumeration": Correct(
        """
import enum
class Mode(enum.Enum):
    TRAIN = enum.auto()
    VALIDATE = enum.auto()
class Scale:
    mode = Mode.TRAIN
    def __call__(self, x):
        return {"x": x * self.mode.value}
transform = Scale()
""",
    ),
    "an abstract base class": Correct(
        """
import abc
class Base(abc.ABC):
    @abc.abstractmethod
    def __call__(self, x): ...
class Same(Base):
    def __call__(self, x):
        return {"x": x if isinstance(x, np.ndarray) else None}
transform = Same()
""",
        "Base.register(dict)",
    ),
    "dispatch by type": Correct(
        """
@functools.singledispatch
def scaled(x):
    return x
@scaled.register
def _(x: np.ndarray):
    return x * 2
def transform(x):
    return {"x": scaled(x)}
""",
        "scaled(3); scaled('text')",
    ),
    "a loader that keeps its last case": Correct(
        """
class Cases(Loader):
    def __init__(self):
        self.last = None
    def __next__(self):
        case = int(np.random.randint(40))
        if self.last is None or self.last[0] != case:
            self.last = (case, np.full(3, case))
        return {"x": self.last[1]}
loader = Cases()
""",
    ),
    "an environment variable of the machine": Correct(
        """
HOME = os.path.expanduser("~/data")
def transform(x):
    return {"x": x, "name": os.path.basename(HOME)}
""",
        "HOME = '/elsewhere/data'",
    ),
    "a pipeline of parts with equal arguments": Correct(
        """
class Scale:
    def __init__(self, factor):
        self.factor = factor
    def __call__(self, x):
        return x * self.factor
class All:
    def __init__(self, *parts):
        self.parts = parts
        self.count = len(parts)
    def __call__(self, x):
        return {"x": functools.reduce(lambda value, part: part(value), self.parts, x)}
transform = All(Scale(2), Scale(np.float32(0.5)), np.abs)
""",
    ),
    "a random number for one batch alone": Correct(
        """
LAST = 0.0
def transform(x):
    global LAST
    LAST = np.random.rand()
    return {"x": x * LAST}
""",
        "LAST = 3.0",
    ),
    "a bounded cache of a method": Correct(
        """
class Load:
    @functools.lru_cache(maxsize=5)
    def load(self, case):
        return np.full(3, case)
    def __call__(self, x):
        return {"x": x[:3] * self.load(int(np.random.randint(40)))}
transform = Load()
""",
        "transform.load(7); transform.load(50)",
    ),
    "a counter that numbers lines of a log": Correct(
        """
class Log:
    def __init__(self):
        self.numbers = itertools.count()
    def __call__(self, x):
        next(self.numbers)
        return {"x": x}
transform = Log()
""",
        "transform(1)",
    ),
    "a table of functions and classes": Correct(
        """
def stronger(x):
    return x * 2
TABLE = {"stronger": stronger, "sin": np.sin, "relu": torch.relu, "kind": np.float32}
CHANGE = stronger
class Apply:
    def __init__(self):
        self.functions = [TABLE["stronger"], np.cos, len, lambda value: value]
        self.where = slice(0, 3)
        self.kind = torch.float32
    def __call__(self, x):
        return {"x": CHANGE(self.functions[1](self.functions[0](x[self.where])))}
transform = Apply()
""",
        "TABLE['later'] = len",
    ),
    "a registry of a metaclass": Correct(
        """
class Registering(type):
    registry = {}
    def __new__(mcls, name, bases, namespace):
        kind = super().__new__(mcls, name, bases, namespace)
        mcls.registry[name] = kind
        return kind
class Base(metaclass=Registering):
    pass
class Twice(Base):
    def __call__(self, x):
        return {"x": x * 2}
transform = Registering.registry["Twice"]()
""",
        "Registering('Later', (Base,), {})",
    ),
    "a descriptor that counts its objects": Correct(
        """
class Checked:
    def __init__(self):
        self.seen = {}
    def __set_name__(self, owner, name):
        self.name = f"_{name}"
    def __get__(self, owner, kind=None):
        return self if owner is None else getattr(owner, self.name)
    def __set__(self, owner, value):
        self.seen[id(owner)] = value
        setattr(owner, self.name, value)
class Scale:
    gain = Checked()
    def __init__(self):
        self.gain = 2.0
    def __call__(self, x):
        return {"x": x * self.gain}
transform = Scale()
""",
        "Scale().gain = 3.0",
    ),
    "a weak reference to the whole": Correct(
        """
class Part:
    def __init__(self, whole):
        self.whole = weakref.ref(whole)
class Whole:
    def __init__(self):
        self.factor = 2
    def __call__(self, x):
        return {"x": x * Part(self).whole().factor}
transform = Whole()
""",
    ),
    "a dict whose items are its attributes too": Correct(
        """
class Config(dict):
    __getattr__ = dict.__getitem__
CONFIG = Config(noise=Config(p=0.5, steps=[1, 2, 3]), lr=0.1)
def transform(x):
    return {"x": x * CONFIG.noise.p}
""",
        "len(CONFIG)",
    ),
    "memory to work in": Correct(
        """
class Scale:
    __slots__ = ("buffer", "other", "tensor")
    def __init__(self):
        self.buffer = np.random.rand(8)
        self.other = np.random.rand(8)
        self.tensor = torch.rand(8)
    def __call__(self, x):
        np.multiply(x, 2, out=self.buffer)
        self.other[:] = self.buffer
        self.tensor.copy_(torch.from_numpy(self.other))
        return {"x": self.tensor.numpy().copy()}
transform = Scale()
""",
    ),
    "rows of numpy.empty that are filled on first use": Correct(
        """
class Table:
    def __init__(self, size):
        # An array that is gone at once, so that the next one begins with its numbers.
        np.random.rand(size)
        self.rows = np.empty(size)
        self.tensor = torch.empty(len("four"), size)
        self.known = np.zeros(size, bool)
    def row(self, index):
        if not self.known[index]:
            self.rows[index] = index
            self.tensor[0, index] = index
            self.known[index] = True
        return self.rows[index]
class Scale:
    def __init__(self):
        self.table = Table(64)
    def __call__(self, x):
        return {"x": x * self.table.row(int(np.random.randint(64)))}
transform = Scale()
""",
    ),
    "objects that functools.cache keeps and that count": Correct(
        """
class Volume:
    def __init__(self, case):
        self.case = case
        self.reads = 0
    def read(self):
        self.reads += 1
        return self.case
@functools.cache
def volume(case):
    return Volume(case)
def transform(x):
    return {"x": x * volume(int(np.random.randint(5))).read()}
""",
        "volume(3).read()",
    ),
    "a module's __getattr__ that imports late": Correct(
        """
LOADED = {}
def __getattr__(name):
    if name != "ndimage":
        raise AttributeError(name)
    if name not in LOADED:
        import scipy.ndimage
        LOADED[name] = scipy.ndimage
    return LOADED[name]
def transform(x):
    return {"x": sys.modules[__name__].ndimage.gaussian_filter(x, 1)}
""",
        "__getattr__('ndimage')",
    ),
    "a context variable for a log": Correct(
        """
STEP = contextvars.ContextVar("step", default=0)
def transform(x):
    STEP.set(STEP.get() + 1)
    return {"x": x}
""",
        "STEP.set(100)",
    ),
    "a setting of the program in a chain of dicts": Correct(
        """
CONFIG = ChainMap({}, {"p": 0.5})
def transform(x):
    return {"x": x * CONFIG["p"]}
""",
        "CONFIG['lr'] = np.random.rand()",
    ),
    "numbers of other kinds and the moment of the start": Correct(
        """
STEP = decimal.Decimal("0.1")
RATIO = fractions.Fraction(1, 3)
STARTED = datetime.datetime.now()
def transform(x):
    return {"x": x * float(STEP) * float(RATIO), "century": STARTED.year // 100}
""",
        "STARTED = datetime.datetime.now()",
    ),
    "objects of libraries that hold the same numbers": Correct(
        """
import ctypes
import SimpleITK
from PIL import Image
from scipy.interpolate import CubicSpline
from scipy.spatial import Delaunay, KDTree
from scipy.spatial.transform import Rotation
POINTS = np.random.default_rng(1).random((40, 3))
FIELD = SimpleITK.GetImageFromArray(np.eye(4))
class Change:
    def __init__(self):
        self.curve = CubicSpline(np.arange(6.0), np.arange(6.0) ** 2)
        self.turn = Rotation.from_euler("z", 30, degrees=True)
        self.tree = KDTree(POINTS)
        self.mesh = Delaunay(POINTS)
        self.shift = SimpleITK.Euler3DTransform()
        self.texture = Image.fromarray(np.eye(4, dtype=np.uint8))
        self.table = (ctypes.c_float * 3)(1, 2, 3)
    def __call__(self, x):
        x = self.curve(x) + self.tree.query(POINTS[0])[0] + self.table[1]
        return {"x": x + self.mesh.find_simplex(POINTS[0]) + FIELD.GetPixel(0, 0)}
transform = Change()
""",
        "transform(np.zeros(8))",
    ),
    "a kernel that is compiled on its first call": Correct(
        """
import numba
@numba.njit
def scaled(x):
    return x * 2
class Scale:
    def __init__(self):
        self.kernel = scaled
    def __call__(self, x):
        return {"x": self.kernel(x)}
transform = Scale()
scaled(np.zeros(8))
""",
        "scaled(np.zeros(8, np.float32))",
    ),
    "an image that keeps what was read of it": Correct(
        """
import nibabel
class Template:
    def __init__(self):
        self.image = nibabel.Nifti1Image(np.arange(8.0).reshape(2, 2, 2), np.eye(4))
    def __call__(self, x):
        return {"x": x * self.image.get_fdata()[1, 1, 1]}
transform = Template()
if np.random.rand() < 0.5:
    transform(1.0)
""",
    ),
    "what only a report reads": Correct(
        """
class Cases(Loader):
    def __init__(self):
        self.load_seconds = time.perf_counter() * np.random.rand()
        self.memory = np.random.randint(9**9)
        self.scratch = f"scratch_{np.random.randint(9**9)}"
        self.times = {"load": self.load_seconds}
    def __next__(self):
        return {"x": self.draw()}
    def draw(self):
        return np.random.rand(8)
    def report(self):
        return f"{self.load_seconds:.1f} s, {self.memory} kB, {self.scratch}, {self.total()}"
    def total(self):
        return sum(self.times.values())
loader = Cases()
""",
        "loader.report(); loader.memory += 1; loader.times['epoch'] = np.random.rand()",
    ),
    "an object with a cache that a function makes on its first call": Correct(
        """
class Reader:
    def __init__(self):
        self.cache = {}
        self.hits = 0
        self.last = None
    def read(self, case):
        self.hits += 1
        self.last = case
        return self.cache.setdefault(case, float(case))
READER = None
def reader():
    global READER
    if READER is None:
        READER = Reader()
    return READER
if np.random.rand() < 0.5:
    reader().read(3)
def transform(x):
    return {"x": x * reader().read(int(np.random.randint(40)))}
""",
        "reader().read(7); reader().read(50)",
    ),
    "a dict with the keys of a set": Correct(
        """
class Cases(Loader):
    def __init__(self):
        names = list({f"case_{number}" for number in range(20)})
        # The order of a set of texts is another one in every interpreter.
        random.shuffle(names)
        self.visits = dict.fromkeys(names, 0)
    def __next__(self):
        return {"x": np.random.rand(8), "n": self.visits["case_7"]}
loader = Cases()
""",
    ),
    "all arguments of the program": Correct(
        """
@dataclasses.dataclass
class Config:
    gain: float = 1.0
    resume: int = dataclasses.field(default_factory=lambda: np.random.randint(9**9))
class Scale:
    def __init__(self, args):
        self.args = args
        self.config = Config()
    def __call__(self, x):
        return {"x": x * self.args.gain * self.config.gain}
ARGS = argparse.Namespace(gain=2.0, resume=np.random.rand(), best=0.0)
transform = Scale(ARGS)
""",
        "ARGS.best = np.random.rand(); transform.config.resume += 1",
    ),
    "a name that only a representation shows": Correct(
        """
class Scale:
    def __init__(self):
        self.name = f"Scale_{np.random.randint(9**9)}"
    def __repr__(self):
        return self.name
    def __call__(self, x):
        return {"x": x * 2}
transform = Scale()
""",
    ),
    "the identifier of a run in a log": Correct(
        """
import secrets
class Cases(Loader):
    def __init__(self):
        self.run_id = secrets.token_hex(4)
    def __next__(self):
        logging.getLogger("users").debug("a batch of %s", self.run_id)
        return {"x": np.random.rand(8)}
loader = Cases()
""",
    ),
    "a sequence of seeds for generators of the constructor": Correct(
        """
class Noise:
    def __init__(self):
        self.seeds = np.random.SeedSequence()
        self.rng, self.other = map(np.random.default_rng, self.seeds.spawn(2))
    def __call__(self, x):
        return {"x": x + self.rng.random(8) * self.other.random()}
transform = Noise()
""",
    ),
}


@pytest.mark.parametrize("case", CORRECT.values(), ids=CORRECT)
def test_nothing_is_said_of_values_that_no_batch_depends_on(case: Correct, name: str) -> None:
    state = {}
    with listening() as heard:
        for seed in (1, 2):
            with ExitStack() as stack:
                program = Program(case.source, seed, stack, name)
                augmenter = program.augmenter
                if state:
                    augmenter.load_state_dict(state)
                for epoch in range(augmenter.epoch, augmenter.epoch + 3):
                    augmenter.set_epoch(epoch)
                    for _ in augmenter:
                        pass
                    exec(case.use, vars(program.module))
                    augmenter.replay(epoch, 3)
                augmenter.restart()
                next(augmenter)
                state = json.loads(json.dumps(augmenter.state_dict()))
    assert heard == []


OF_A_LIBRARY = click.Context(click.Command("held"))
OF_THE_USER = types.SimpleNamespace(params={})


def call_both(x):
    return x, OF_A_LIBRARY, OF_THE_USER.params


def test_what_a_librarys_object_has_not_filled_yet_is_not_compared(monkeypatch):
    """Called in the program, and not yet in a fresh interpreter."""
    fresh = variables_in(PipelineCode([call_both]))
    monkeypatch.setitem(OF_A_LIBRARY.params, "angle", 0.3)
    monkeypatch.setitem(OF_THE_USER.params, "angle", 0.3)
    program = variables_in(PipelineCode([call_both]))
    in_both = [path for path in program if path in fresh and program[path] != fresh[path]]
    assert in_both
    assert all("OF_THE_USER" in path for path in in_both)


@pytest.mark.parametrize(
    ("text", "is_name"),
    [("'run_54321'", True), ("'/tmp/54321-a/b'", True), ("'154321'", False)],
)
def test_a_text_with_the_number_of_the_process_names_the_job(
    text: str, is_name: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 54321)
    assert names_the_job(text) == is_name

"""XMLBIF files of others, and what is refused in them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.graphical import BayesianNetwork

# As JavaBayes and Weka write it: elements declared in front, comments within tables.
DOG = """<?xml version="1.0" encoding="ISO-8859-1"?>
<!DOCTYPE BIF [
  <!ELEMENT BIF ( NETWORK )*>
  <!ATTLIST BIF VERSION CDATA #REQUIRED>
]>
<BIF VERSION="0.3"><NETWORK>
<NAME>Dog_Problem</NAME>
<VARIABLE TYPE="nature"><NAME>chiêtn</NAME><OUTCOME>true</OUTCOME>
  <OUTCOME>false</OUTCOME><PROPERTY>position = (73, 165)</PROPERTY></VARIABLE>
<VARIABLE TYPE="nature"><NAME> bowel problem </NAME><OUTCOME>a</OUTCOME>
  <OUTCOME>b</OUTCOME><OUTCOME>c</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>out</NAME><OUTCOME>true</OUTCOME><OUTCOME>false</OUTCOME></VARIABLE>
<DEFINITION><FOR>out</FOR><GIVEN>bowel problem</GIVEN><GIVEN>chiêtn</GIVEN>
<TABLE> <!-- rows: parents, the last one fastest -->
.99 .01
.97 .03 <!-- (a, false) -->
.90 .10 .30 .70
0 1 1e-3 .999</TABLE></DEFINITION>
<DEFINITION><FOR>bowel problem</FOR><TABLE>.2 .3 .5</TABLE></DEFINITION>
<DEFINITION><FOR>chiêtn</FOR><TABLE>.15 .85</TABLE></DEFINITION>
</NETWORK></BIF>"""


def read(tmp_path, text, encoding="latin-1"):
    path = tmp_path / "network.xml"
    path.write_text(text, encoding=encoding)
    return BayesianNetwork.from_xmlbif(path)


def test_files_of_others_are_read(tmp_path):
    network = read(tmp_path, DOG)
    assert network.variable_names == ("chiêtn", "bowel problem", "out")
    assert network.parents == ((), (), (1, 0))
    tables = [np.exp(factor.log_table) for factor in network.factors]
    assert_allclose(tables[0], [0.15, 0.85])
    rows = [[[0.99, 0.01], [0.97, 0.03]], [[0.9, 0.1], [0.3, 0.7]], [[0.0, 1.0], [0.001, 0.999]]]
    assert_allclose(tables[2], rows)


def test_namespaces_and_encodings_do_not_matter(tmp_path):
    text = DOG.replace("<BIF ", '<BIF xmlns="http://www.cs.ubc.ca/labs/lci/fopi/ve/XMLBIFv0_3" ')
    text = text.replace("ISO-8859-1", "UTF-16")
    assert read(tmp_path, text, "utf-16").variable_names[0] == "chiêtn"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("]>\n<BIF", '<!ENTITY a "aaaa">]>\n<BIF', "declare no entities"),
        ("]>\n<BIF", '<!ENTITY a SYSTEM "file:///etc/passwd">]>\n<BIF', "declare no entities"),
        ("]>\n<BIF", '<!ENTITY % a "aaaa">]>\n<BIF', "declare no entities"),
        ("</BIF>", "", "be well-formed XML"),
        ("ISO-8859-1", "klingon", "be well-formed XML"),
        ("</VARIABLE>", "</VARIABLE><VARIABLE TYPE='decision'><NAME>d</NAME></VARIABLE>", "nature"),
        ("<OUTCOME>b</OUTCOME>", "<OUTCOME>a</OUTCOME>", "OUTCOMEs of bowel problem must be diff"),
        ("<NAME> bowel problem </NAME>", "<NAME>out</NAME>", "declare every variable once"),
        ("<FOR>out</FOR>", "<FOR>chiêtn</FOR>", "give every variable one probability"),
        ("<FOR>out</FOR>", "", "DEFINITION must have one FOR"),
        ("<GIVEN>bowel problem</GIVEN>", "<GIVEN>cat</GIVEN>", "be declared as variables"),
        (".2 .3 .5", ".2 .8", "be 3 numbers"),
        (".2 .3 .5", ".2 .3 x", "hold numbers"),
        (".2 .3 .5", ".2 .3 .9", "sum to one"),
        (".2 .3 .5", ".2 .3 nan", "be finite"),
        ("VARIABLE", "VAR", "hold one NETWORK of VARIABLE elements"),
    ],
)
def test_faults_are_named_with_the_file(tmp_path, old, new, message):
    assert old in DOG
    text = DOG.replace(old, new) if old == "VARIABLE" else DOG.replace(old, new, 1)
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, text)
    assert "network.xml" in str(caught.value) and "Traceback" not in str(caught.value)


def test_large_tables_are_refused_by_the_size_they_declare(tmp_path):
    names = [f"p{i}" for i in range(70)]
    variables = "".join(
        f"<VARIABLE><NAME>{v}</NAME><OUTCOME>a</OUTCOME><OUTCOME>b</OUTCOME></VARIABLE>"
        for v in [*names, "c"]
    )
    own = "".join(f"<DEFINITION><FOR>{v}</FOR><TABLE>.5 .5</TABLE></DEFINITION>" for v in names)
    given = "".join(f"<GIVEN>{v}</GIVEN>" for v in names)
    last = f"<DEFINITION><FOR>c</FOR>{given}<TABLE>1</TABLE></DEFINITION>"
    with pytest.raises(ValueError, match="at most 60 variables"):
        read(tmp_path, f"<BIF><NETWORK>{variables}{own}{last}</NETWORK></BIF>")

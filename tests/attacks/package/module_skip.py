# skips the whole module by unittest's exception
# fails: import
import unittest
raise unittest.SkipTest("not on this platform")

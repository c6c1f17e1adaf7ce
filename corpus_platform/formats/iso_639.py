"""Language codes of three letters to those of two, by which documents and the model are labelled.

The pairs are facts of ISO 639; languages that have no code of two letters keep theirs of three.
"""

__all__ = ["short_code"]

_PAIRS = """
aar:aa abk:ab afr:af aka:ak amh:am ara:ar arg:an asm:as ava:av ave:ae aym:ay aze:az bak:ba bam:bm
bel:be ben:bn bis:bi bod:bo bos:bs bre:br bul:bg cat:ca ces:cs cha:ch che:ce chu:cu chv:cv cor:kw
cos:co cre:cr cym:cy dan:da deu:de div:dv dzo:dz ell:el eng:en epo:eo est:et eus:eu ewe:ee fao:fo
fas:fa fij:fj fin:fi fra:fr fry:fy ful:ff gla:gd gle:ga glg:gl glv:gv grn:gn guj:gu hat:ht hau:ha
hbs:sh heb:he her:hz hin:hi hmo:ho hrv:hr hun:hu hye:hy ibo:ig ido:io iii:ii iku:iu ile:ie ina:ia
ind:id ipk:ik isl:is ita:it jav:jv jpn:ja kal:kl kan:kn kas:ks kat:ka kau:kr kaz:kk khm:km kik:ki
kin:rw kir:ky kom:kv kon:kg kor:ko kua:kj kur:ku lao:lo lat:la lav:lv lim:li lin:ln lit:lt ltz:lb
lub:lu lug:lg mah:mh mal:ml mar:mr mkd:mk mlg:mg mlt:mt mon:mn mri:mi msa:ms mya:my nau:na nav:nv
nbl:nr nde:nd ndo:ng nep:ne nld:nl nno:nn nor:no nya:ny oci:oc oji:oj ori:or orm:om oss:os pan:pa
pli:pi pol:pl por:pt pus:ps que:qu roh:rm ron:ro run:rn rus:ru sag:sg san:sa sin:si slk:sk slv:sl
sme:se smo:sm sna:sn snd:sd som:so sot:st spa:es sqi:sq srd:sc srp:sr ssw:ss sun:su swa:sw swe:sv
tah:ty tam:ta tat:tt tel:te tgk:tg tgl:tl tha:th tir:ti ton:to tsn:tn tso:ts tuk:tk tur:tr twi:tw
uig:ug ukr:uk urd:ur uzb:uz ven:ve vie:vi vol:vo wln:wa wol:wo xho:xh yid:yi yor:yo zha:za zho:zh
zul:zu
"""
# The older set of codes, and members of a macrolanguage that are what is meant by it; lid.176 has
# `no` for Bokmål.
_OTHERS = """
alb:sq arm:hy baq:eu bur:my chi:zh cze:cs dut:nl fre:fr geo:ka ger:de gre:el ice:is mac:mk mao:mi
may:ms per:fa rum:ro slo:sk tib:bo wel:cy
arb:ar cmn:zh ekk:et fil:tl khk:mn lvs:lv nob:no npi:ne ory:or pes:fa plt:mg swh:sw uzn:uz zsm:ms
"""
_SHORT = {pair[:3]: pair[4:] for pair in (_PAIRS + _OTHERS).split()}


def short_code(code: str) -> str:
    """Return the code of two letters for one of three; any other as it is, in lower case."""
    code = code.strip().lower()
    return _SHORT.get(code, code)

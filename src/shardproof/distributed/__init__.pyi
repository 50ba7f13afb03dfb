from shardproof.distributed._checks import Spread as Spread
from shardproof.distributed._checks import check_together as check_together
from shardproof.distributed._checks import validate as validate
from shardproof.distributed._groups import Group as Group
from shardproof.distributed._groups import group_of as group_of
